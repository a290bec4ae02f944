"""The official Python client, unmodified, on custom resources: dynamic client, generated API, apply from YAML, watch."""

from pathlib import Path

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException

here = Path(__file__).parent
config.load_kube_config()
api = client.ApiClient()

utils.create_from_yaml(api, here.parent / "crd.yaml")
definitions = client.ApiextensionsV1Api()
for event in watch.Watch().stream(
    definitions.list_custom_resource_definition, field_selector="metadata.name=ships.harbour.example.com"
):
    conditions = event["object"].status.conditions or []
    if any(one.type == "Established" and one.status == "True" for one in conditions):
        break
print("definition")

ships = dynamic.DynamicClient(api).resources.get(api_version="harbour.example.com/v1", kind="Ship")
assert ships.short_names == ["sh"] and "scale" in ships.subresources, ships.subresources
argo = {"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": "argo"}, "spec": {"port": "colchis"}}
made = ships.create(argo, namespace="default")
assert made.spec.crew == 3, made
argo["spec"]["cargo"] = [{"name": "fleece", "weight": "1kg"}]
applied = ships.server_side_apply(argo, namespace="default", field_manager="python", force_conflicts=True)
assert applied.spec.cargo[0].name == "fleece"
print("dynamic")

custom = client.CustomObjectsApi()
where = ("harbour.example.com", "v1", "default", "ships")
custom.patch_namespaced_custom_object_status(*where, "argo", {"status": {"phase": "Sailing"}})
custom.patch_namespaced_custom_object_scale(*where, "argo", {"spec": {"replicas": 9}})
found = custom.get_namespaced_custom_object(*where, "argo")
assert (found["spec"]["crew"], found["status"]["phase"]) == (9, "Sailing"), found
print("custom objects")

since = found["metadata"]["resourceVersion"]
custom.patch_namespaced_custom_object(*where, "argo", {"metadata": {"labels": {"sea": "black"}}})
for event in watch.Watch().stream(custom.list_namespaced_custom_object, *where, resource_version=since):
    assert (event["type"], event["object"]["metadata"]["labels"]) == ("MODIFIED", {"sea": "black"}), event
    break
print("watch")

try:
    custom.create_namespaced_custom_object(*where, {**argo, "metadata": {"name": "b"}, "spec": {"port": "x", "crew": 101}})
except ApiException as refused:
    assert refused.status == 422 and "a ship has at most 100 sailors" in refused.body, refused.body
else:
    raise AssertionError("it was not refused")
custom.delete_collection_namespaced_custom_object(*where)
definitions.delete_custom_resource_definition("ships.harbour.example.com")
print("deletion")
