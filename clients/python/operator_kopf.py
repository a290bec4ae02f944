"""An operator made with kopf: it is started before its definition is there, and keeps a ConfigMap per ship."""

import kopf
from lightkube import Client
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap

GROUP, VERSION, PLURAL = "harbour.example.com", "v1", "ships"


@kopf.index(GROUP, VERSION, PLURAL)
def by_port(name, spec, **_):
    return {spec["port"]: name}


@kopf.on.create(GROUP, VERSION, PLURAL)
def created(name, namespace, uid, spec, patch, body, **_):
    owner = OwnerReference(f"{GROUP}/{VERSION}", "Ship", name, uid, controller=True, blockOwnerDeletion=True)
    log = ConfigMap(metadata=ObjectMeta(name=f"{name}-log", ownerReferences=[owner]), data={"port": spec["port"]})
    Client(namespace=namespace, field_manager="kopf").apply(log)
    patch.status["phase"] = "Sailing"
    kopf.info(body, reason="Launched", message=f"bound for {spec['port']}")


@kopf.on.field(GROUP, VERSION, PLURAL, field="spec.crew")
def crewed(new, patch, meta, **_):
    patch.status["crew"] = new
    patch.status["observedGeneration"] = meta["generation"]


@kopf.daemon(GROUP, VERSION, PLURAL)
async def lookout(stopped, name, by_port: kopf.Index, **_):
    while not stopped:
        await stopped.wait(1)


@kopf.on.delete(GROUP, VERSION, PLURAL)
def sunk(name, namespace, **_):
    # Runs while kopf's finalizer holds the object: the ship must still be there.
    sea = ConfigMap(metadata=ObjectMeta(name="sea"), data={"last": name})
    Client(namespace=namespace, field_manager="kopf").apply(sea, force=True)
