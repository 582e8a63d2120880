"""Wait records: what each actor process waits for, in a file that others read while the process is stopped or dead."""
