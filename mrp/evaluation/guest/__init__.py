"""What runs inside the sandbox: the judge with the tests, and the candidate with the program.

Only the standard library is used here, since nothing else of this project exists in there.
"""
