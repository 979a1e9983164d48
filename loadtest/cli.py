"""The command `kvgate engine`: one emulated engine in the foreground.

Rule: what cannot work (a port that is taken, sizes that do not fit) is one line on stderr and exit code 1.
"""

import asyncio
import os
import signal
from typing import Annotated

import typer
from pydantic import ValidationError

from loadtest.engine import Settings, serve

DIED = 70
"""Exit code of a process that the fault "die" ended."""


def engine(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 9001,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    kind: Annotated[
        str, typer.Option(help='"vllm" (held against recordings) or "tgi" (documented schema only, not verified).')
    ] = "vllm",
    model: Annotated[
        str, typer.Option(help="Model of the catalogue whose geometry sets speed and size.")
    ] = "llama-3.1-8b",
    served_model_name: Annotated[str | None, typer.Option(help="Name that clients use; default: the model.")] = None,
    gpu: Annotated[str, typer.Option(help="GPU of the catalogue.")] = "h100-sxm",
    tensor_parallel_size: Annotated[int, typer.Option(help="Number of GPUs.")] = 1,
    speed: Annotated[float, typer.Option(help="20: twenty times as fast as the GPU would be.")] = 1.0,
    max_model_len: Annotated[int, typer.Option(help="Most tokens of prompt and reply.")] = 32_768,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Most tokens of one step.")] = 8192,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences of one step.")] = 256,
    max_num_queued_reqs: Annotated[
        int | None, typer.Option(help="Refuse with 503 when so many sequences wait or run.")
    ] = None,
    num_gpu_blocks_override: Annotated[int | None, typer.Option(help="Blocks of KV cache, whatever fits.")] = None,
    block_size: Annotated[int, typer.Option(help="Tokens of one block.")] = 16,
    gpu_memory_utilization: Annotated[float, typer.Option(help="Share of the memory that the engine takes.")] = 0.9,
    enable_prefix_caching: Annotated[bool, typer.Option(help="Share blocks of equal prefixes.")] = True,
    scheduling_policy: Annotated[
        str, typer.Option(help='"fcfs", or "priority": honour the field `priority`.')
    ] = "fcfs",
    api_key: Annotated[
        str | None, typer.Option(envvar="KVGATE_ENGINE_API_KEY", help="Key that /v1 routes ask for.")
    ] = None,
    enable_prompt_tokens_details: Annotated[bool, typer.Option(help="Report cached tokens in usage.")] = True,
    enable_request_id_headers: Annotated[bool, typer.Option(help="Send X-Request-Id back.")] = False,
    enable_force_include_usage: Annotated[bool, typer.Option(help="Usage on every stream.")] = False,
    refuse_stream_options: Annotated[
        bool, typer.Option(help="Refuse `stream_options` with 422, as engines do that do not know it.")
    ] = False,
    enable_embeddings: Annotated[bool, typer.Option(help="Serve /v1/embeddings.")] = False,
    kv_transfer: Annotated[bool, typer.Option(help="Take part in prefill/decode hand-over.")] = True,
    typical_output_tokens: Annotated[int, typer.Option(help="Median length of a reply that ends by itself.")] = 160,
    seed: Annotated[int, typer.Option(help="Another seed, other replies and other victims of faults.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="KIND=SHARE[,after:N]: refuse, status, slow, stall, cut, error, malformed or die; repeatable."
        ),
    ] = None,
    shutdown_timeout: Annotated[float, typer.Option(help="Seconds that running requests get at the end.")] = 0.0,
) -> None:
    """Run an emulated engine: vLLM's API, errors and metrics, the timing of a named GPU, and no GPU.

    The reply is pseudo-text that follows from the prompt. With tools given, a user message that contains the name of
    one is answered by a call of it. Faults on demand: see `--fault`, the header x-kvgate-fault, and
    POST /emulator/faults.
    """
    try:
        settings = Settings(
            kind=kind,
            host=host,
            port=port,
            model=model,
            served_model_name=served_model_name,
            gpu=gpu,
            tensor_parallel_size=tensor_parallel_size,
            speed=speed,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_num_queued_reqs=max_num_queued_reqs,
            num_gpu_blocks_override=num_gpu_blocks_override,
            block_size=block_size,
            gpu_memory_utilization=gpu_memory_utilization,
            enable_prefix_caching=enable_prefix_caching,
            scheduling_policy=scheduling_policy,
            api_key=api_key,
            enable_prompt_tokens_details=enable_prompt_tokens_details,
            enable_request_id_headers=enable_request_id_headers,
            enable_force_include_usage=enable_force_include_usage,
            refuse_stream_options=refuse_stream_options,
            enable_embeddings=enable_embeddings,
            kv_transfer=kv_transfer,
            typical_output_tokens=typical_output_tokens,
            seed=seed,
            faults=tuple(fault or ()),
            shutdown_timeout_seconds=shutdown_timeout,
        )
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_run(settings))
    except ValidationError as error:
        _fail("; ".join(f"--{_flag(each['loc'])}: {each['msg']}" for each in error.errors()))
    except ValueError as error:
        _fail(str(error))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        _fail(f"cannot listen on {host}:{port}: {reason}; choose another --port or --host")


async def _run(settings: Settings) -> None:
    """Until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(settings, die=lambda: os._exit(DIED)) as running:
        print(f"emulated {settings.kind} engine, model {settings.served}, on {running.url}", flush=True)
        await stop.wait()


def _new_loop() -> asyncio.AbstractEventLoop:
    """The faster loop, where it exists: it halves the cost of a frame."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _flag(location: tuple[int | str, ...]) -> str:
    return str(location[0] if location else "settings").replace("_", "-")


def _fail(line: str) -> None:
    typer.echo(f"kvgate engine: {' '.join(line.split())}", err=True)
    raise typer.Exit(1)
