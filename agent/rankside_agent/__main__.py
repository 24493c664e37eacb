"""`python -m rankside_agent`: the same as the command `rankside`, where no script is on the path."""

from rankside_agent.cli import main

if __name__ == "__main__":
    main()
