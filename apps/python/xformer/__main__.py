"""`python -m xformer WORDS`, and the command `xformer` of the wheel: this process becomes the program."""

from __future__ import annotations

import os
import signal
import sys

from xformer._program import Error, environment, program


def main() -> None:
    try:
        path = program()
        for one in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a program that it becomes would, too
            signal.signal(one, signal.SIG_DFL)
        os.execve(path, [path, *sys.argv[1:]], environment())
    except Error as error:
        print(f"xformer: {error}", file=sys.stderr)
        sys.exit(error.code)
    except OSError as error:
        print(f"xformer: {error.filename or 'the program'} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(4)


if __name__ == "__main__":
    main()
