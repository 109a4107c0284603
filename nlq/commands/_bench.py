"""The command `nlq bench`. Like `cli.py` it imports whatever is slow inside the command."""

from typing import Annotated

import typer

from nlq.commands._options import Json


def bench(
    size: Annotated[
        list[str] | None,
        typer.Option("--size", help="tiny, small or gpt2; may be given several times; all unless given."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Threads of each step; all cores unless given.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda:0; the GPU unless given, where there is one.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="Turns of each step; unless given, as many as fit into 20 s a size.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="How long a turn lasts; 1 unless given.")] = None,
    arms: Annotated[
        bool, typer.Option("--arms", help="What each variant costs beside the baseline: training, prefill, decode.")
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="A sweep of eight tiny runs against eight plain processes.")
    ] = False,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Compile neither the tuned step nor nlq's.")] = False,
    json: Json = False,
) -> None:
    """Measure what a training step costs here: its floor, a plain step, a tuned one, and nlq's."""
    from nlq.commands.bench import bench as measure
    from nlq.commands.bench import turns_of

    turns = turns_of(rounds, seconds)
    parts = {"arms": arms, "sweep": sweep, "compiled": not no_compile, "as_json": json}
    measure(size or [], threads, device, turns, **parts)
