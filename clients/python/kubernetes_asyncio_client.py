"""kubernetes_asyncio, unmodified, on custom resources: generated and dynamic clients, watch."""

import asyncio
from pathlib import Path

import yaml
from kubernetes_asyncio import client, config, dynamic, watch
from kubernetes_asyncio.client.exceptions import ApiException

here = Path(__file__).parent
WHERE = ("harbour.example.com", "v1", "default", "ships")


async def main():
    await config.load_kube_config()
    async with client.ApiClient() as api:
        definitions = client.ApiextensionsV1Api(api)
        await definitions.create_custom_resource_definition(yaml.safe_load((here.parent / "crd.yaml").read_text()))
        async with watch.Watch().stream(definitions.list_custom_resource_definition) as events:
            async for event in events:
                conditions = event["object"].status.conditions or []
                if any(one.type == "Established" and one.status == "True" for one in conditions):
                    break
        print("definition")

        ship = {"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": "argo"}}
        custom = client.CustomObjectsApi(api)
        try:
            await custom.create_namespaced_custom_object(*WHERE, {**ship, "spec": {}})
        except ApiException as refused:
            assert refused.status == 422 and "spec.port: Required value" in refused.body, refused.body
        else:
            raise AssertionError("it was not refused")
        made = await custom.create_namespaced_custom_object(*WHERE, {**ship, "spec": {"port": "colchis"}})
        assert made["spec"]["crew"] == 3, made
        merge = "application/merge-patch+json"
        await custom.patch_namespaced_custom_object(*WHERE, "argo", {"spec": {"crew": 4}}, _content_type=merge)
        since = made["metadata"]["resourceVersion"]
        async with watch.Watch().stream(custom.list_namespaced_custom_object, *WHERE, resource_version=since) as events:
            async for event in events:
                assert (event["type"], event["object"]["spec"]["crew"]) == ("MODIFIED", 4), event
                break
        print("custom objects")

        ships = await (await dynamic.DynamicClient(api)).resources.get(api_version="harbour.example.com/v1", kind="Ship")
        listed = await ships.get(namespace="default")
        assert [one.metadata.name for one in listed.items] == ["argo"], listed
        await ships.delete(name="argo", namespace="default")
        await definitions.delete_custom_resource_definition("ships.harbour.example.com")
        print("dynamic")


asyncio.run(main())
