"""Manifests: the golden files that all SDKs share, and what they do not show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

import bindery
from bindery import v1alpha2 as api

from .runner import rendered

GOLDEN = Path(__file__).resolve().parents[2] / "contract" / "manifests"


def golden() -> list[Any]:
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in sorted(GOLDEN.glob("*.json"))]


def test_the_golden_files_are_there() -> None:
    assert len(golden()) > 50, f"{GOLDEN} is not whole"


@pytest.mark.parametrize("case", golden())
def test_golden_files(case: dict[str, Any]) -> None:
    if "refusal" in case:
        with pytest.raises(bindery.ManifestRefusedError) as raised:
            rendered(case["input"])
        assert raised.value.reason == case["refusal"]["reason"], str(raised.value)
        return
    text = rendered(case["input"])
    assert text == case["canonical"]
    assert [json.loads(line) for line in text.removesuffix("\n").split("\n")] == case["documents"]


def answer() -> api.BindingResourceResponse:
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


def test_documents_are_whole_and_in_order() -> None:
    made = bindery.manifests(answer(), template="cowboys", with_namespace=True)
    assert repr(made) == (
        "Manifests(Namespace kube-bind, ClusterRole kube-bind-konnector-west, ClusterRoleBinding kube-bind-konnector-west, "
        "Secret kubeconfig-west, APIServiceBinding west)"
    )
    assert made.documents[3]["data"] == {"kubeconfig": "aHVudGVyMg=="}
    assert made.documents[4]["metadata"]["annotations"] == {
        "kube-bind.io/accepted-claims": '[{"resource":"secrets","selector":{"namedResources":[{"name":"star"}]}}]',
        "kube-bind.io/resources": "cowboys.wildwest.dev",
        "kube-bind.io/template": "cowboys",
    }
    assert "aHVudGVyMg" not in repr(made)


def test_a_bound_knows_what_was_asked_for() -> None:
    request = api.BindableResourcesRequest(
        metadata=api.ObjectMeta(name="west"), spec=api.BindableResourcesRequestSpec(template_ref=api.NameRef(name="cowboys"))
    )
    bound = bindery.Bound(request, answer())
    annotations = bound.manifests(reject=["secrets"]).documents[-1]["metadata"]["annotations"]
    assert annotations["kube-bind.io/template"] == "cowboys"
    assert annotations["kube-bind.io/accepted-claims"] == "[]"
    request.metadata.name = "east"
    with pytest.raises(bindery.ManifestRefusedError) as raised:
        bound.manifests()
    assert raised.value.reason == "OtherBinding"
