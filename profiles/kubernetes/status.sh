#!/bin/sh
# Says of a Job: success, failed or running. While the cluster does not answer, it is running.
if ! counts=$(kubectl get job "$1" --ignore-not-found \
    --output 'jsonpath={.metadata.name}/{.status.succeeded}/{.status.failed}' 2>/dev/null); then
    echo running
    exit
fi
case $counts in
    "" | */*/[1-9]*) echo failed ;; # deleted by hand, or its pod failed
    */[1-9]*/*) echo success ;;
    *) echo running ;;
esac
