"""`python -m supervisor`: the same as the command `supervisor`."""

from supervisor.cli import main

if __name__ == "__main__":
    main()
