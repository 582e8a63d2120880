"""The parent process: its loop, its duties and the requests it answers."""
