"""What an operator's user does: starts it, brings the definition, makes, changes and deletes ships."""

import subprocess
import sys
import time
from pathlib import Path

from lightkube import ApiError, Client
from lightkube.codecs import load_all_yaml
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import ConfigMap, Event
from lightkube.types import PatchType

here = Path(__file__).parent
client = Client(namespace="default", field_manager="user")
Ship = create_namespaced_resource("harbour.example.com", "v1", "Ship", "ships")


def until(what, condition, seconds=60):
    """Polls: the operator is another process, and what it has done is in several kinds of objects."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = condition()
        except ApiError as error:
            if error.status.code != 404:
                raise
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"did not happen: {what}")


def gone(kind, name):
    try:
        client.get(kind, name)
        return False
    except ApiError as error:
        return error.status.code == 404


operator = subprocess.Popen(
    [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace=default", here / "operator_kopf.py"]
)
try:
    [definition] = load_all_yaml((here.parent / "crd.yaml").read_text())
    client.create(definition)
    client.wait(CustomResourceDefinition, "ships.harbour.example.com", for_conditions=["Established"])
    client.create(Ship(metadata=ObjectMeta(name="argo"), spec={"port": "colchis"}))
    ship = until("status", lambda: (s := client.get(Ship, "argo")).status and s.status.get("phase") == "Sailing" and s)
    assert any("kopf" in one for one in ship.metadata.finalizers), ship.metadata.finalizers
    log = client.get(ConfigMap, "argo-log")
    assert log.data == {"port": "colchis"} and log.metadata.ownerReferences[0].uid == ship.metadata.uid
    until("events", lambda: any(event.involvedObject.name == "argo" for event in client.list(Event)))
    print("created", flush=True)

    client.patch(Ship, "argo", {"spec": {"crew": 50}}, patch_type=PatchType.MERGE)
    until("the crew", lambda: client.get(Ship, "argo").status.get("crew") == 50)
    print("updated", flush=True)

    client.delete(Ship, "argo")
    until("the ship's end", lambda: gone(Ship, "argo"))
    assert client.get(ConfigMap, "sea").data == {"last": "argo"}
    until("the log's end", lambda: gone(ConfigMap, "argo-log"))
    print("deleted", flush=True)
finally:
    operator.terminate()
    code = operator.wait(30)
assert code == 0, code
print("stopped")
