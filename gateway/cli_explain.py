"""`kvgate explain`: which limits bound a request, what it would ask of them, and when it would pass.

Rule: the key comes from the environment or from standard input, so that it need not stand in a shell's history.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from gateway.asker import Asker
from gateway.command import DEFAULT_FILE, File, configuration, content, process_settings, run, stop
from gateway.errors import Fault
from gateway.explain_limits import COLUMNS, explanation
from gateway.keys import PREFIX
from gateway.operating import AsJson, table
from gateway.secret import known_secret
from gateway.starting import using


def explain(
    request: Annotated[Path, typer.Argument(help="A request body, as a client would send it.")],
    key: Annotated[
        str | None,
        typer.Option(envvar="KVGATE_KEY", show_envvar=True, help="Whose request it is; - reads it from stdin."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose request it is, by name.")] = None,
    key_name: Annotated[str | None, typer.Option(help="With --tenant: by which of its keys.")] = None,
    session: Annotated[str | None, typer.Option(help="The id of the session that the client would send.")] = None,
    config: File = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Show which limits bound a request, what it would ask of them, and when it would pass. Nothing is reserved."""
    if tenant is not None:
        key = None  # a name on the command line goes before a key in the environment
    elif key == "-":
        key = typer.get_text_stream("stdin").readline().strip()
    if not (key or tenant):
        stop("say whose request it is: --key - (or KVGATE_KEY), or --tenant NAME")
    settings, loaded, body = process_settings(), configuration(config), content(request)
    asker = Asker(key, tenant or "", key_name, session)
    secret = known_secret(settings) if key is not None and key.startswith(PREFIX) else b""

    async def told() -> None:
        async with using(settings) as store:
            try:
                found = await explanation(loaded, store, secret, asker, body)
            except Fault as fault:
                stop(fault.message)
        if as_json:
            typer.echo(json.dumps({"head": found.head, "limits": found.rows, "verdict": found.verdict}, indent=2))
            return
        for line in (*found.head, *table(found.rows, COLUMNS), found.verdict):
            typer.echo(line)

    run(told())
