"""The program `medusa-testnet`."""

from __future__ import annotations

import sys


def main() -> None:
    from medusa.tools.commands.extras import say_missing

    try:
        from medusa.testnet.command import main as testnet

        testnet()
    except ModuleNotFoundError as error:
        sys.exit(say_missing(error))


if __name__ == "__main__":
    main()
