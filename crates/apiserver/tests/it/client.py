"""What users of the Python client do, against the server of $KUBECONFIG. Prints the name of each part that worked."""

import json
import os
import tempfile

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
core, apps, batch = client.CoreV1Api(), client.AppsV1Api(), client.BatchV1Api()


def deployment(name):
    labels = {"app": name}
    container = client.V1Container(
        name="web",
        image="nginx:1",
        env=[client.V1EnvVar(name="A", value="1")],
        resources=client.V1ResourceRequirements(requests={"cpu": "100m", "memory": "64Mi"}),
        ports=[client.V1ContainerPort(container_port=80)],
    )
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(replicas=2, selector=client.V1LabelSelector(match_labels=labels), template=template)
    return client.V1Deployment(metadata=client.V1ObjectMeta(name=name, labels=labels), spec=spec)


def typed():
    made = apps.create_namespaced_deployment("default", deployment("typed"))
    assert made.metadata.uid and made.spec.strategy.type == "RollingUpdate", made
    made.spec.replicas = 3
    changed = apps.replace_namespaced_deployment("typed", "default", made)
    assert changed.spec.replicas == 3 and changed.metadata.generation == 2, changed
    listed = apps.list_deployment_for_all_namespaces(label_selector="app=typed", limit=1)
    assert [item.metadata.name for item in listed.items] == ["typed"], listed
    scale = apps.read_namespaced_deployment_scale("typed", "default")
    assert scale.spec.replicas == 3 and scale.status.selector == "app=typed", scale
    scale.spec.replicas = 1
    assert apps.replace_namespaced_deployment_scale("typed", "default", scale).spec.replicas == 1
    made = apps.read_namespaced_deployment_status("typed", "default")
    made.status.observed_generation = 7
    assert apps.replace_namespaced_deployment_status("typed", "default", made).status.observed_generation == 7
    core.create_namespaced_secret(
        "default", client.V1Secret(metadata=client.V1ObjectMeta(generate_name="s-"), string_data={"k": "v"})
    )
    (secret,) = [item for item in core.list_namespaced_secret("default").items if item.metadata.generate_name == "s-"]
    assert secret.data == {"k": "dg=="} and secret.type == "Opaque", secret
    apps.delete_namespaced_deployment("typed", "default", propagation_policy="Background")
    core.delete_collection_namespaced_secret("default")
    assert core.list_namespaced_secret("default").items == []


def patches():
    apps.create_namespaced_deployment("default", deployment("patched"))
    name = ("patched", "default")
    # A dictionary goes out as a strategic merge patch: the container is found by its name and keeps its ports.
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:2"}, {"name": "b", "image": "b"}]}}}}
    made = apps.patch_namespaced_deployment(*name, sidecar)
    images = {item.name: item.image for item in made.spec.template.spec.containers}
    assert images == {"web": "nginx:2", "b": "b"} and made.spec.template.spec.containers[0].ports, made
    made = apps.patch_namespaced_deployment(*name, [{"op": "replace", "path": "/spec/replicas", "value": 5}])
    assert made.spec.replicas == 5, made
    merged = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="apps/v1", kind="Deployment")
    made = merged.patch(
        name="patched",
        namespace="default",
        body={"spec": {"template": {"spec": {"containers": [{"name": "only", "image": "o"}]}}}},
        content_type="application/merge-patch+json",
    )
    assert [item.name for item in made.spec.template.spec.containers] == ["only"], made
    apps.delete_namespaced_deployment("patched", "default")


def watching():
    first = core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="w")))
    seen = []
    stream = watch.Watch()
    core.patch_namespaced_config_map("w", "default", {"data": {"a": "1"}})
    core.delete_namespaced_config_map("w", "default")
    events = stream.stream(
        core.list_namespaced_config_map,
        "default",
        field_selector="metadata.name=w",
        resource_version=first.metadata.resource_version,
        timeout_seconds=60,
    )
    for event in events:
        seen.append((event["type"], (event["object"].data or {}).get("a")))
        if event["type"] == "DELETED":
            stream.stop()
    assert seen == [("MODIFIED", "1"), ("DELETED", "1")], seen


def dynamically():
    untyped = dynamic.DynamicClient(client.ApiClient())
    jobs = untyped.resources.get(api_version="batch/v1", kind="CronJob")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}},
    }
    made = jobs.create(body=body, namespace="default")
    assert made.spec.concurrencyPolicy == "Allow", made
    made = jobs.patch(
        name="nightly", namespace="default", body={"spec": {"suspend": True}}, content_type="application/merge-patch+json"
    )
    assert made.spec.suspend is True
    assert [item.metadata.name for item in jobs.get(namespace="default").items] == ["nightly"]
    for event in jobs.watch(namespace="default", timeout=60):
        assert event["type"] == "ADDED" and event["object"].metadata.name == "nightly", event
        break
    jobs.delete(name="nightly", namespace="default")
    assert untyped.resources.get(api_version="v1", kind="Node").namespaced is False


def apply():
    maps = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1"}}

    def send(body, manager, **options):
        # As text: this version of the client would not write anything else into such a request.
        text = json.dumps(body)
        return maps.server_side_apply(
            name="applied", namespace="default", body=text, field_manager=manager, **options
        )

    made = send(body, "one")
    assert [(entry.manager, entry.operation) for entry in made.metadata.managedFields] == [("one", "Apply")], made
    again = send(body, "one")
    assert again.metadata.resourceVersion == made.metadata.resourceVersion, "an apply of the same changes nothing"
    try:
        send({**body, "data": {"a": "2"}}, "two")
        raise AssertionError("a conflict was expected")
    except ApiException as error:
        assert error.status == 409 and '"field":".data.a"' in str(error.body), error.body
    forced = send({**body, "data": {"a": "2"}}, "two", force_conflicts=True)
    assert forced.data.a == "2", forced


def from_yaml():
    text = """
apiVersion: v1
kind: Namespace
metadata: {name: from-yaml}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: from-yaml}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: listed, namespace: from-yaml}, data: {k: v}}
"""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "all.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        utils.create_from_yaml(client.ApiClient(), path)
    service = core.read_namespaced_service("web", "from-yaml")
    assert service.spec.cluster_ip and service.spec.ports[0].target_port == 8080, service
    assert core.read_namespaced_config_map("listed", "from-yaml").data == {"k": "v"}


def errors():
    for call, code, reason in [
        (lambda: core.read_namespaced_pod("none", "default"), 404, "NotFound"),
        (lambda: core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="default"))), 409, "AlreadyExists"),
        (lambda: core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="Not_A_Name"))), 422, "Invalid"),
    ]:
        try:
            call()
            raise AssertionError(f"{reason} was expected")
        except ApiException as error:
            assert error.status == code and f'"reason":"{reason}"' in error.body, error.body
    try:
        utils.create_from_dict(client.ApiClient(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        raise AssertionError("a failure was expected")
    except utils.FailToCreateError:
        pass


for name, part in [
    ("typed", typed),
    ("patches", patches),
    ("watch", watching),
    ("dynamic", dynamically),
    ("apply", apply),
    ("yaml", from_yaml),
    ("errors", errors),
]:
    part()
    print(name, flush=True)
