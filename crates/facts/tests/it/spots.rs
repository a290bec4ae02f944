//! What readers of the table rely on, kind by kind.

use std::sync::Arc;

use facts::{Field, List, ListType, MapType, Member, Opaque, Resource, Schema, Shape, Stability, Type, Wire};

fn of(name: &str) -> &'static Type {
    facts::type_named(name).unwrap_or_else(|| panic!("{name} is in the table")).def()
}

fn core(name: &str) -> &'static Type {
    of(&format!("io.k8s.api.core.v1.{name}"))
}

#[test]
fn counts_are_those_of_v1_37() {
    let entries = |on: bool| -> usize {
        let versions =
            facts::groups().iter().flat_map(|group| &group.versions).filter(|version| version.default_on == on);
        versions.flat_map(|version| &version.resources).map(|resource| 1 + resource.subresources.len()).sum()
    };
    assert_eq!((entries(true), entries(false)), (121, 41));
    assert_eq!(facts::groups()[0].name, "");
    assert_eq!(facts::groups()[1].name, "apiregistration.k8s.io");
}

#[test]
fn only_stable_versions_are_on() {
    for version in facts::groups().iter().flat_map(|group| &group.versions) {
        assert_eq!(version.default_on, version.stability == Stability::Stable, "{}", version.name);
    }
    let autoscaling: Vec<_> =
        facts::table().group("autoscaling").expect("served").versions.iter().map(|v| &*v.name).collect();
    assert_eq!(autoscaling, ["v2", "v1"]);
}

#[test]
fn resources_know_their_names_and_types() {
    let pods = facts::resource("", "v1", "pods").expect("served");
    assert_eq!((&*pods.singular, &*pods.kind, pods.namespaced), ("pod", "Pod", true));
    assert_eq!((&*pods.short_names, &*pods.categories), (&["po".into()][..], &["all".into()][..]));
    assert_eq!(pods.ty.expect("built in").def().name, "io.k8s.api.core.v1.Pod");
    assert_eq!(pods.list_ty.expect("listable").def().name, "io.k8s.api.core.v1.PodList");
    assert_eq!(pods.subresource("eviction").expect("served").kind_of, Some(("policy".into(), "v1".into())));
    assert!(pods.returns_deleted && !facts::resource("", "v1", "configmaps").expect("served").returns_deleted);
    assert!(pods.verbs.has("deletecollection") && !pods.verbs.has("proxy"));
    let exec = pods.subresource("exec").and_then(|exec| exec.ty).expect("known to protobuf");
    assert_eq!(exec.def().short_name(), "PodExecOptions");
    assert_eq!(facts::kind("apps", "v1", "Deployment").expect("served").plural, "deployments");
    assert!(facts::kind("apps", "v1", "Scale").is_none());
    for resource in facts::resources() {
        assert!(resource.ty.is_some(), "{}", resource.plural);
        assert_eq!(resource.list_ty.is_some(), resource.verbs.has("list"), "{}", resource.plural);
        for sub in &resource.subresources {
            assert!(sub.ty.is_some(), "{}/{}", resource.plural, sub.name);
        }
    }
}

#[test]
fn containers_merge_by_name() {
    let containers = core("PodSpec").field("containers").expect("a field");
    assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
    assert!(containers.patch_strategy.merge && !containers.patch_strategy.retain_keys && containers.required);
    let list = containers.schema.list().expect("a list");
    assert_eq!((list.list_type, &*list.keys), (Some(ListType::Map), &["name".into()][..]));
    assert_eq!(list.items.object().expect("objects").name, "io.k8s.api.core.v1.Container");
    assert_eq!(containers.proto.expect("a number").number, 2);
    assert!(core("PodSpec").field("volumes").expect("a field").patch_strategy.retain_keys);
}

#[test]
fn service_ports_are_told_apart_by_port_and_protocol() {
    let ports = core("ServiceSpec").field("ports").expect("a field");
    assert!(ports.schema.list().expect("a list").keys.iter().eq(["port", "protocol"]));
    assert_eq!(ports.patch_merge_key.as_deref(), Some("port"));
    assert_eq!(core("ContainerPort").field("protocol").expect("a field").default.as_deref(), Some("\"TCP\""));
}

#[test]
fn atomic_values_are_told() {
    assert!(core("PodSpec").field("nodeSelector").expect("a field").is_atomic());
    assert!(core("PodSpec").field("tolerations").expect("a field").is_atomic());
    assert!(!core("PodSpec").field("containers").expect("a field").is_atomic());
    assert_eq!(of("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").map_type, Some(MapType::Atomic));
    assert!(of("io.k8s.api.apps.v1.DeploymentSpec").field("selector").expect("a field").is_atomic());
}

#[test]
fn scalars_of_their_own_shape_are_recognized() {
    let meta = of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let created = meta.field("creationTimestamp").expect("a field");
    assert_eq!(created.schema, Schema::Time);
    assert!(matches!(created.proto.expect("a number").wire, Wire::Message(id) if id.def().shape == Shape::Time));
    assert_eq!(core("ServicePort").field("targetPort").expect("a field").schema, Schema::IntOrString);
    let limits = &core("ResourceRequirements").field("limits").expect("a field").schema;
    assert_eq!(limits.map().expect("a map").values, Schema::Quantity);
    let data = &core("Secret").field("data").expect("a field").schema;
    assert_eq!(data.map().expect("a map").values, Schema::Bytes);
    let renewed = of("io.k8s.api.coordination.v1.LeaseSpec").field("renewTime").expect("a field");
    assert_eq!(renewed.schema, Schema::MicroTime);
    let data = of("io.k8s.api.apps.v1.ControllerRevision").field("data").expect("a field");
    assert_eq!(data.schema, Schema::Any(Opaque::RawExtension));
}

#[test]
fn presence_is_told_for_pointers_and_zeros() {
    let spec = of("io.k8s.api.apps.v1.DeploymentSpec");
    assert!(spec.field("replicas").and_then(|replicas| replicas.proto).expect("a number").pointer);
    assert!(!spec.field("paused").and_then(|paused| paused.proto).expect("a number").pointer);
    assert!(spec.field("template").expect("a field").always && spec.field("strategy").expect("a field").always);
    assert!(!of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").field("creationTimestamp").expect("a field").always);
    let service = of("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIServiceSpec");
    assert!(service.field("service").and_then(|service| service.proto).expect("a number").pointer);
}

#[test]
fn inlined_messages_are_members() {
    let Some(Member::Inlined(source)) = core("Volume").member(2) else { panic!("the source is inlined") };
    assert_eq!(source.def().name, "io.k8s.api.core.v1.VolumeSource");
    assert!(core("Volume").field("hostPath").expect("a field of the object").proto.is_none());
    assert!(source.def().field("hostPath").expect("a field of the message").proto.is_some());
    // Twice over: the named rule holds a rule with operations, which holds a rule.
    let named = of("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations");
    let Some(Member::Inlined(with_operations)) = named.member(2) else { panic!("inlined") };
    let Some(Member::Inlined(rule)) = with_operations.def().member(2) else { panic!("inlined") };
    assert!(rule.def().field("apiGroups").is_some());
}

#[test]
fn options_are_known_in_every_group_version() {
    let options = facts::type_of("apps", "v1", "DeleteOptions").expect("registered everywhere");
    assert_eq!(options.def().short_name(), "DeleteOptions");
    assert_eq!(facts::type_of("", "v1", "Status").expect("known").def().short_name(), "Status");
    assert_eq!(facts::type_of("", "v1", "ListOptions").expect("known").def().short_name(), "ListOptions");
    assert!(facts::type_of("admission.k8s.io", "v1", "AdmissionReview").is_some());
    assert!(facts::type_of("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList").is_some());
    assert!(facts::type_of("meta.k8s.io", "v1", "PartialObjectMetadataList").is_some());
    assert!(facts::type_of("apps", "v1", "Nothing").is_none());
}

#[test]
fn unions_name_their_discriminator() {
    let subject = of("io.k8s.api.flowcontrol.v1.Subject");
    assert_eq!(subject.unions[0].discriminator.as_deref(), Some("kind"));
    assert_eq!(subject.unions[0].members[0], ("group".into(), "Group".into()));
}

#[test]
fn types_and_resources_can_be_made_at_run_time() {
    let mut port = Field::new("port", Schema::IntOrString);
    port.required = true;
    let item = Arc::new(Type::new("com.example.v1.Port", vec![port, Field::new("name", Schema::String)]));
    let items = List { items: Schema::Object(item), list_type: Some(ListType::Map), keys: ["name".into()].into() };
    let spec = Type::new("com.example.v1.Spec", vec![Field::new("ports", Schema::Array(Box::new(items)))]);
    let ports = spec.field("ports").expect("a field");
    assert!(!ports.is_atomic());
    let item = ports.schema.list().and_then(|list| list.items.object()).expect("objects");
    assert!(item.required().map(|field| &*field.name).eq(["port"]));
    assert!(item.fields().iter().map(|field| &*field.name).eq(["name", "port"]), "sorted");

    let resource = Resource::new("example.com", "v1", "things", "Thing");
    assert_eq!((&*resource.singular, &*resource.list_kind), ("thing", "ThingList"));
    assert_eq!(resource.api_version(), "example.com/v1");
}

#[test]
fn fields_stay_small() {
    // The table has some 4,500 of them; this keeps it near one megabyte.
    assert!(size_of::<Field>() <= 168 && size_of::<Schema>() <= 16, "{} {}", size_of::<Field>(), size_of::<Schema>());
}
