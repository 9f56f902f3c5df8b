"""Manifests: the golden files that all SDKs share, and what they do not show."""

from __future__ import annotations

import dataclasses
import json
import pickle
import pprint
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.timestamp_pb2 import Timestamp

import bindery
from bindery import v1alpha2 as api

from .both import Callers
from .conftest import Scripts
from .runner import render

GOLDEN = Path(__file__).resolve().parents[2] / "contract" / "manifests"


def golden() -> list[Any]:
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in sorted(GOLDEN.glob("*.json"))]


def test_the_golden_files_are_there() -> None:
    assert len(golden()) > 50, f"{GOLDEN} is not whole"


@pytest.mark.parametrize("case", golden())
def test_golden_files(case: dict[str, Any]) -> None:
    if "refusal" in case:
        with pytest.raises(bindery.ManifestRefusedError) as raised:
            render(case["input"]).canonical()
        assert raised.value.reason == case["refusal"]["reason"], str(raised.value)
        return
    text = render(case["input"]).canonical()
    assert text == case["canonical"]
    assert [json.loads(line) for line in text.removesuffix("\n").split("\n")] == case["documents"]


def bind_response() -> api.BindingResourceResponse:
    response: api.BindingResourceResponse = ParseDict(
        {
            "providerNamespace": "kube-bind-x",
            "bindingName": "west",
            "kubeconfig": {"kubeconfig": "aHVudGVyMg=="},
            "requests": [
                {
                    "name": "west",
                    "resources": [{"group": "wildwest.dev", "resource": "cowboys"}],
                    "permissionClaims": [{"resource": "secrets", "selector": {"namedResources": [{"name": "star"}]}}],
                }
            ],
            "consumerRules": [{"apiGroups": ["wildwest.dev"], "resources": ["cowboys", "cowboys/status"], "verbs": ["get"]}],
        },
        api.BindingResourceResponse(),
    )
    return response


def test_manifests_are_whole_and_in_order() -> None:
    made = bindery.manifests(bind_response(), template="cowboys", with_namespace=True)
    assert repr(made) == (
        "Manifests(Namespace kube-bind, ClusterRole kube-bind-konnector-west, ClusterRoleBinding kube-bind-konnector-west, "
        "Secret kubeconfig-west, APIServiceBinding west)"
    )
    secret = made[3]
    assert (secret.kind, secret.name, secret.namespace) == ("Secret", "kubeconfig-west", "kube-bind")
    assert secret.document()["data"] == {"kubeconfig": "aHVudGVyMg=="}
    assert json.loads(secret.json()) == secret.document()
    assert made.canonical() == "".join(f"{manifest.json()}\n" for manifest in made)
    assert made[4].document()["metadata"]["annotations"] == {
        "kube-bind.io/accepted-claims": '[{"resource":"secrets","selector":{"namedResources":[{"name":"star"}]}}]',
        "kube-bind.io/resources": "cowboys.wildwest.dev",
        "kube-bind.io/template": "cowboys",
    }


def shown(value: object) -> str:
    """The texts that programs log of a value."""
    texts = [str(value), repr(value), f"{value}", pprint.pformat(value), json.dumps(value, default=repr)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        texts.append(repr(dataclasses.asdict(value)))
    return "\n".join(texts)


def test_no_kubeconfig_is_shown() -> None:
    bound = bindery.Bound(api.BindableResourcesRequest(), bind_response())
    details = api.Kubeconfig(kubeconfig=b"hunter2", credential_id="anchor-1", expire_time=Timestamp(seconds=5))
    renewed = bindery.Renewed.of(api.RenewKubeconfigResponse(contract="c", kubeconfig=details))
    result = bindery.BindResult(bound.request, bound)
    made = bound.manifests()
    values = (
        bound,
        bound.response,
        bound.kubeconfig,
        renewed,
        renewed.kubeconfig,
        renewed.details,
        result,
        made,
        made[2],
        list(made),
    )
    for value in values:
        for hidden in ("hunter2", "aHVudGVyMg"):
            assert hidden not in shown(value), type(value)
    assert (bound.kubeconfig.reveal(), renewed.kubeconfig.reveal()) == (b"hunter2", b"hunter2")
    assert (renewed.details.credential_id, renewed.expire_time) == ("anchor-1", datetime.fromtimestamp(5, UTC))
    assert details.kubeconfig, "the message of the caller stays as it is"
    for value in (bound.kubeconfig, bound, renewed):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(value)


def test_a_bound_knows_what_was_asked_for() -> None:
    request = api.BindableResourcesRequest(
        metadata=api.ObjectMeta(name="west"), spec=api.BindableResourcesRequestSpec(template_ref=api.NameRef(name="cowboys"))
    )
    bound = bindery.Bound(request, bind_response())
    annotations = bound.manifests(reject=["secrets"])[-1].document()["metadata"]["annotations"]
    assert annotations["kube-bind.io/template"] == "cowboys"
    assert annotations["kube-bind.io/accepted-claims"] == "[]"
    assert "kube-bind.io/template" not in bound.manifests(template="")[-1].json()
    request.metadata.name = "east"
    with pytest.raises(bindery.ManifestRefusedError) as raised:
        bound.manifests()
    assert raised.value.reason == "OtherBinding"


def test_a_server_cannot_bind_something_else(caller: Callers, script: Scripts) -> None:
    other = api.BindableResourcesRequest(metadata=api.ObjectMeta(name="west"))
    server = script([api.CreateBindableResourcesRequestResponse(bindable_resources_request=other, response=bind_response())])
    bound = caller(server.address).do("bind", "cowboys", "uid")
    with pytest.raises(bindery.ManifestRefusedError) as raised:
        bound.manifests()
    assert raised.value.reason == "OtherBinding"
