"""The parent process: its loop, its service and the requests it answers."""
