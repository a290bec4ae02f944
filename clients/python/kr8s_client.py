"""kr8s, unmodified: its own CRD class, objects made from the definition, watch, scale, patch, conditions, deletion."""

import os
from pathlib import Path

import kr8s
from kr8s.objects import CustomResourceDefinition, new_class, objects_from_files

here = Path(__file__).parent
api = kr8s.api(kubeconfig=os.environ["KUBECONFIG"])

[definition] = objects_from_files(here.parent / "crd.yaml", api=api)
assert isinstance(definition, CustomResourceDefinition)
definition.create()
# Until its first condition is written a definition has `conditions: null`, which `wait` of kr8s cannot read.
while not definition.status.conditions:
    definition.refresh()
definition.wait("condition=Established", timeout=30)
print("definition")

Ship = new_class("Ship", version="harbour.example.com/v1", namespaced=True, scalable=True, scalable_spec="crew")
ship = Ship({"metadata": {"name": "argo", "labels": {"sea": "black"}}, "spec": {"port": "colchis"}}, api=api)
ship.create()
assert ship.spec.crew == 3 and ship.spec.flag == "none", ship.raw
found = list(kr8s.get("ships.harbour.example.com", label_selector="sea=black", api=api))
assert [one.name for one in found] == ["argo"], found
assert [one.name for one in kr8s.get("sh", api=api)] == ["argo"]
print("objects")

events = api.watch("ships.harbour.example.com", namespace="default")
kind, seen = next(events)
assert (kind, seen.name) == ("ADDED", "argo"), (kind, seen)
ship.label({"sail": "square"})
kind, seen = next(events)
assert kind == "MODIFIED" and seen.labels["sail"] == "square", (kind, seen.raw)
print("watch")

ship.patch({"spec": {"cargo": [{"name": "fleece", "weight": "1kg"}]}})
ship.scale(50)
ship.refresh()
assert ship.spec.crew == 50 and ship.spec.cargo[0].weight == "1kg", ship.raw
ship.patch({"status": {"phase": "Sailing"}}, subresource="status")
ship.wait("jsonpath='{.status.phase}'=Sailing", timeout=30)
print("patches")

for patch, words in [
    ({"spec": {"crew": 101}}, "a ship has at most 100 sailors"),
    ({"spec": {"flag": "skull"}}, "a ship keeps its flag"),
    ({"spec": {"port": ""}}, "spec.port in body should be at least 1 chars long"),
]:
    try:
        ship.patch(patch)
    except kr8s.ServerError as refused:
        assert words in str(refused), refused
    else:
        raise AssertionError(f"{patch} was not refused")
print("refusals")

ship.delete(propagation_policy="Foreground")
ship.wait("delete", timeout=30)
assert not ship.exists()
definition.delete()
definition.wait("delete", timeout=30)
print("deletion")
