"""The command line `windtunnel`: its commands, and how errors become exit codes.

The modules of this package import little, so that the command line starts quickly: a command imports what it needs when
it runs.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from windtunnel.cli import catalogue, checking, emulation, files, planning, predict, simulate, validation
from windtunnel.cli.console import Failure
from windtunnel.core.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="windtunnel")
def cli() -> None:
    """Simulate fleets of accelerators: latency, throughput, power and cost.

    Exit codes: 0 done, 1 a target was missed or a finding was reported, 2 the input is wrong, 3 a device that was
    asked for by name is not present, 70 a bug in Windtunnel.
    """


# Every command of these modules, except subcommands such as `validate serving`. A new command needs no line here.
_MODULES = (catalogue, checking, emulation, files, planning, predict, simulate, validation)
_COMMANDS = {value for module in _MODULES for value in vars(module).values() if isinstance(value, click.Command)}
for _command in _COMMANDS - {sub for one in _COMMANDS if isinstance(one, click.Group) for sub in one.commands.values()}:
    cli.add_command(_command)


def script() -> None:
    """Run the command line in a process of its own (see ``windtunnel.__main__``): set the handlers of two signals."""
    # Otherwise a closed pipe (`windtunnel ops | head`) ends in click's exit code 1, which means a missed target.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # A termination request unwinds the stack, so that half-written files are removed.
    signal.signal(signal.SIGTERM, _terminate)
    if sys.stderr.isatty():
        logging.basicConfig(format="%(message)s")
        logging.getLogger("windtunnel").setLevel(logging.INFO)
    try:
        with _discarded_signals_sent_again():
            main()
    finally:
        # Otherwise the interpreter would search all objects for cycles before it ends, which takes a twentieth of the
        # time of a short run.
        gc.freeze()


class _Terminated(SystemExit):
    """The end of a command that was asked to terminate."""


def _terminate(*_: object) -> None:
    raise _Terminated(143)


@contextlib.contextmanager
def _discarded_signals_sent_again() -> Iterator[None]:
    """Send a signal whose KeyboardInterrupt or SystemExit Python discarded again, 10 ms later.

    Python discards what is raised in a finalizer, in a callback of a weak reference and in a callback from C, and a
    signal is handled wherever it arrives. Without this, the command would go on as if no signal had been sent.
    """
    command = threading.get_ident()

    def report(unraisable: Any) -> None:
        number = {KeyboardInterrupt: signal.SIGINT, _Terminated: signal.SIGTERM}.get(unraisable.exc_type)
        if number is None:
            sys.__unraisablehook__(unraisable)
        else:
            again = threading.Timer(0.01, signal.pthread_kill, (command, number))
            again.daemon = True
            again.start()

    if hasattr(signal, "pthread_kill"):
        sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = sys.__unraisablehook__


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end with SystemExit, whose code is the exit code; errors go to standard error.

    ``arguments`` are those of the process unless given. May be called inside another program: it changes no signal
    handler.
    """
    words = list(arguments) if arguments is not None else None
    _guard(lambda: cli.main(args=words, prog_name="windtunnel", standalone_mode=False))


def _guard(command: Callable[[], Any]) -> None:
    from windtunnel.core.errors import WindtunnelError

    try:
        # A full disk or a closed pipe is an error while standard output is flushed; it can still be reported here.
        code = command()
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("windtunnel: interrupted", err=True)
        sys.exit(130)
    except Exception as error:
        failure = Failure.of(error)
        if isinstance(error, (WindtunnelError, OSError)):
            click.echo(f"windtunnel: {failure.message}", err=True)
            sys.exit(failure.exit_code)
        import traceback

        traceback.print_exc()
        click.echo(
            "windtunnel: this is a bug in Windtunnel. Please report it with the command, the input and the lines "
            f"above (version {__version__}).",
            err=True,
        )
        sys.exit(failure.exit_code)


if __name__ == "__main__":
    script()
