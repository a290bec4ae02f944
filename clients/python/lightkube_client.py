"""lightkube, unmodified: typed CRD models, generic resources, server-side apply with its conflicts, watch, scale."""

from pathlib import Path

from lightkube import ApiError, Client
from lightkube.codecs import load_all_yaml
from lightkube.generic_resource import create_namespaced_resource, load_in_cluster_generic_resources
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.types import PatchType

here = Path(__file__).parent
client = Client(namespace="default", field_manager="lightkube")

[definition] = load_all_yaml((here.parent / "crd.yaml").read_text())
assert isinstance(definition, CustomResourceDefinition)
client.apply(definition)
client.wait(CustomResourceDefinition, "ships.harbour.example.com", for_conditions=["Established"])
load_in_cluster_generic_resources(client)
print("definition")

Ship = create_namespaced_resource("harbour.example.com", "v1", "Ship", "ships")
ship = client.create(Ship(metadata=ObjectMeta(name="argo"), spec={"port": "colchis"}))
assert ship.spec == {"port": "colchis", "crew": 3, "flag": "none"}, ship.spec
assert [one.metadata.name for one in client.list(Ship, namespace="*")] == ["argo"]
print("objects")

wanted = {"port": "colchis", "cargo": [{"name": "fleece", "weight": 1}]}
ship = client.apply(Ship(metadata=ObjectMeta(name="argo"), spec=wanted), field_manager="jason", force=True)
assert ship.spec["cargo"] == wanted["cargo"] and ship.spec["crew"] == 3, ship.spec
more = {"port": "colchis", "cargo": [{"name": "oil", "weight": "2kg"}]}
ship = client.apply(Ship(metadata=ObjectMeta(name="argo"), spec=more), field_manager="medea")
assert [one["name"] for one in ship.spec["cargo"]] == ["fleece", "oil"], "a list is merged by its key"
try:
    client.apply(Ship(metadata=ObjectMeta(name="argo"), spec={"port": "iolcus"}), field_manager="medea")
except ApiError as refused:
    assert refused.status.code == 409 and 'conflicts with "jason":' in refused.status.message, refused.status
else:
    raise AssertionError("no conflict")
print("apply")

version = ship.metadata.resourceVersion
client.patch(Ship, "argo", {"spec": {"crew": 5}}, patch_type=PatchType.MERGE)
for kind, seen in client.watch(Ship, resource_version=version):
    assert (kind, seen.spec["crew"]) == ("MODIFIED", 5), (kind, seen)
    break
scale = client.get(Ship.Scale, "argo")
scale.spec = ScaleSpec(replicas=7)
assert client.replace(scale, "argo").spec.replicas == 7
status = client.patch(Ship.Status, "argo", {"status": {"phase": "Sailing", "crew": 7}}, patch_type=PatchType.MERGE)
assert status.status["phase"] == "Sailing" and client.get(Ship.Scale, "argo").status.replicas == 7
print("subresources")

try:
    client.create(Ship(metadata=ObjectMeta(name="dutchman"), spec={"crew": 101}))
except ApiError as refused:
    causes = {(cause.field, cause.reason) for cause in refused.status.details.causes}
    assert refused.status.code == 422 and ("spec.port", "FieldValueRequired") in causes, causes
else:
    raise AssertionError("it was not refused")
print("refusals")

client.deletecollection(Ship)
assert list(client.list(Ship)) == []
client.delete(CustomResourceDefinition, "ships.harbour.example.com")
print("deletion")
