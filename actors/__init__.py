"""What runs inside a child process. A package without underscore is one manager and one process."""
