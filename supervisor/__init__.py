"""The parent process: the supervised process tree, its control socket, the command line and the console."""
