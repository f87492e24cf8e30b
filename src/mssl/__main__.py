"""``python -m mssl`` is the command line."""


def _run() -> None:
    from mssl.cli import main

    main()


if __name__ == "__main__":
    _run()
