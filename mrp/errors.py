"""The one exception for mistakes that a user can mend."""

from __future__ import annotations


class UserError(Exception):
    """Bad input: the message is one line that names the file, key or flag and the fix.

    The command line prints it without a traceback and exits with code 2.
    """
