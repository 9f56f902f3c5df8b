#!/usr/bin/env python3
"""Binds a template for a cluster in a pipeline, and writes what the cluster has to apply.

    python pipeline.py cowboys --server https://bind.example.com --identity "$CLUSTER_UID" --output manifests/

It waits while the provider works on the request, and tells its progress on standard error. It writes one line of JSON per object
to standard output, as ``kubectl apply --server-side -f -`` takes it, or with ``--output FOLDER`` one file per object. One of the
objects is a Secret: its file is readable by its owner alone, and standard output should not be a log.

The token is for the URL of the server. It comes from a file (``--token-file``, or the variable BIND_TOKEN_FILE), a command
(``--token-command``, such as ``kubectl bind token --exec-credential``), or the variable BIND_TOKEN; never from an argument, which
other users of a machine can read.

It can be run again at any time: the same bind returns what is there, with a fresh kubeconfig.

Exit codes:

    0  bound, and written
    2  the arguments or settings are wrong
    3  the token is missing, not accepted, or does not allow this
    4  the template, or something else, does not exist
    5  the provider refuses the request, or could not fulfill it
    6  still pending: run it again to go on waiting
    7  the server cannot be reached, or cannot answer now: run it again later
    8  the server's answer asks for more than it may, or breaks the rules
    9  the manifests cannot be written
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import bindery
from bindery.objects import canonical
from bindery.v1alpha2 import BindableResourcesRequest

USAGE, TOKEN, NOT_FOUND, REFUSED, PENDING, UNREACHABLE, UNTRUSTED, NOT_WRITTEN = range(2, 10)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program, and returns its exit code."""
    args = parse(arguments)
    try:
        manifests = bind(args)
        if args.dry_run:
            return 0
        write(manifests, args.output)
    except bindery.BinderyError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_code(error)
    except OSError as error:
        print(f"error: cannot write the manifests: {error}", file=sys.stderr)
        return NOT_WRITTEN
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line and the variables."""
    parser = argparse.ArgumentParser(description="Binds a template for a cluster, and writes what the cluster has to apply.")
    parser.add_argument("template", help="name of the template")
    parser.add_argument("--server", default=os.environ.get("BIND_SERVER"), help="URL of the backend (BIND_SERVER)")
    parser.add_argument(
        "--identity",
        default=os.environ.get("BIND_CLUSTER_IDENTITY"),
        help="UID of the cluster's namespace kube-system (BIND_CLUSTER_IDENTITY)",
    )
    parser.add_argument("--name", help="name of the binding; that of the template unless it is given")
    parser.add_argument("--pretty-name", default="", help="name of the cluster for people")
    parser.add_argument("--ca-file", default=os.environ.get("BIND_CA_FILE"), help="CA of the backend (BIND_CA_FILE)")
    parser.add_argument("--token-file", default=os.environ.get("BIND_TOKEN_FILE"), help="file with the token (BIND_TOKEN_FILE)")
    parser.add_argument("--token-command", type=shlex.split, help="command that prints the token")
    parser.add_argument("--allow-plaintext", action="store_true", help="allow http:// to a loopback address")
    parser.add_argument("--accept", action="append", metavar="RESOURCE", help="accept only these claims; may be repeated")
    parser.add_argument("--reject", action="append", default=[], metavar="RESOURCE", help="reject this claim; may be repeated")
    parser.add_argument("--namespace", default="kube-bind", help="namespace of the konnector")
    parser.add_argument("--with-namespace", action="store_true", help="write the Namespace, too")
    parser.add_argument("--patience", type=float, default=300, metavar="SECONDS", help="how long to wait (300)")
    parser.add_argument("--output", default="-", help="folder for the manifests, or - for standard output")
    parser.add_argument("--dry-run", action="store_true", help="check everything, and write nothing here or at the provider")
    args = parser.parse_args(arguments)
    for name in ("server", "identity"):
        if not getattr(args, name):
            parser.error(f"--{name} is not given, nor its variable")
    return args


def token(args: argparse.Namespace, variables: Mapping[str, str] = os.environ) -> bindery.TokenSource | None:
    """The source of the token: a file, a command or a variable."""
    if args.token_command:
        return bindery.ExecToken(args.token_command)
    if args.token_file:
        return bindery.FileToken(args.token_file)
    return bindery.StaticToken(variables["BIND_TOKEN"]) if variables.get("BIND_TOKEN") else None


def bind(args: argparse.Namespace) -> bindery.Manifests:
    """Binds, and makes the manifests."""
    with bindery.Client(
        args.server,
        token=token(args),
        ca_file=args.ca_file,
        allow_plaintext=args.allow_plaintext,
        user_agent="bindery-pipeline/1",
    ) as client:
        tell(f"binding {args.template} at {client.audience}")
        bound = client.bind(
            args.template,
            args.identity,
            name=args.name,
            pretty_name=args.pretty_name,
            patience=args.patience,
            progress=progress,
            validate_only=args.dry_run,
        )
    if args.dry_run:
        tell(f"{bound.response.binding_name} can be bound")
        return bindery.Manifests(())
    tell(f"bound as {bound.response.binding_name}, contract {bound.response.provider_namespace}")
    return bound.manifests(
        template=args.template,
        namespace=args.namespace,
        with_namespace=args.with_namespace,
        accept=args.accept,
        reject=args.reject,
    )


def progress(request: BindableResourcesRequest) -> None:
    """Tells what a pending request waits for."""
    waiting = [condition for condition in request.status.conditions if condition.status != "True"]
    why = f": {waiting[0].message or waiting[0].reason}" if waiting else ""
    tell(f"waiting for the provider{why}")


def tell(text: str) -> None:
    """Tells progress."""
    print(text, file=sys.stderr, flush=True)


def write(manifests: bindery.Manifests, output: str) -> None:
    """Writes the objects, each to a file that sorts in the order in which they are applied."""
    if output == "-":
        sys.stdout.write(manifests.canonical())
        return
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for number, document in enumerate(manifests.documents):
        path = folder / f"{number}-{document['kind'].lower()}-{document['metadata']['name']}.json"
        path.unlink(missing_ok=True)
        # Created for its owner alone, for one of them holds a credential.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{canonical(document)}\n")
        tell(f"wrote {path}")


def exit_code(error: bindery.BinderyError) -> int:
    """The exit code by the kind of an error."""
    match error:
        case bindery.ConfigurationError() | bindery.InvalidArgumentError():
            return USAGE
        case bindery.TokenError() | bindery.UnauthenticatedError() | bindery.PermissionDeniedError():
            return TOKEN
        case bindery.NotFoundError():
            return NOT_FOUND
        case bindery.PendingError():
            return PENDING
        case bindery.TransportError(fault=fault) if fault.needs_mending:
            return USAGE
        case (
            bindery.TransportError()
            | bindery.UnavailableError()
            | bindery.DeadlineExceededError()
            | bindery.ResourceExhaustedError()
        ):
            return UNREACHABLE
        case bindery.ProtocolError() | bindery.ManifestRefusedError():
            return UNTRUSTED
        case _:
            return REFUSED


if __name__ == "__main__":
    sys.exit(main())
