//! What lets a pod prove who it is: tokens and certificates. A node gets those that its own pods ask for, and no others:
//! with a token for another audience it could speak as the pod to somebody whom the pod never speaks to.

use gates::authorization::{Attributes, Decision};
use machinery::status::ApiError;
use machinery::{Value, value};

use super::super::{Operation, together};
use super::{MIRROR, Refusal, Ruling, Write, refuse};

/// Volumes that a CSI driver has taken over, and that driver.
const MIGRATED: [(&str, &str); 7] = [
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "pxd.portworx.com"),
];

impl Write<'_> {
    /// A token for a pod that runs on the node, and for nothing else.
    pub(super) async fn token(&self) -> Ruling {
        let Some(request) = self.new else { return Ok(()) };
        let reference = |field: &str| value::text(request, &format!("spec.boundObjectRef.{field}"));
        if reference("apiVersion") != "v1" || reference("kind") != "Pod" || reference("name").is_empty() {
            return refuse("node requested token not bound to a pod");
        }
        let uid = reference("uid");
        if uid.is_empty() {
            return refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.stored("", "pod", reference("name")).await?;
        if *uid != *pod.meta().uid {
            return refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated",
            ));
        }
        if pod.meta().field("spec.nodeName") != Some(self.node) {
            return refuse("node requested token bound to a pod scheduled on a different node");
        }
        let audience = match value::list(request, "spec.audiences") {
            [] => "",
            [audience] => audience.as_str().unwrap_or_default(),
            _ => return refuse("node may only request 0 or 1 audiences"),
        };
        self.audience(&pod.to_value(), audience).await
    }

    /// One that the pod or a driver of its volumes asks for, or that somebody lets the node ask for.
    async fn audience(&self, pod: &Value, audience: &str) -> Ruling {
        if self.asks_for(pod, audience).await? {
            return Ok(());
        }
        let info = self.request.info;
        if self.may("request-serviceaccounts-token-audience", audience, &info.name).await {
            return Ok(());
        }
        refuse(format!("{} is not authorized to request tokens for audience {audience:?}", self.request.user.name))
    }

    async fn asks_for(&self, pod: &Value, audience: &str) -> Ruling<bool> {
        let mut wrong = Vec::new();
        for volume in value::list(pod, "spec.volumes") {
            let is_asked = |source: &Value| {
                source.get("serviceAccountToken").is_some_and(|token| value::text(token, "audience") == audience)
            };
            if value::list(volume, "projected.sources").iter().any(is_asked) {
                return Ok(true);
            }
            match self.driver_asks_for(pod, volume, audience).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(Refusal::Forbidden(why)) => wrong.push(why),
                Err(Refusal::Answer(error)) => wrong.push(error.message),
            }
        }
        match together(&wrong) {
            Some(wrong) => refuse(format!("error validating audience {audience:?}: {wrong}")),
            None => Ok(false),
        }
    }

    async fn driver_asks_for(&self, pod: &Value, volume: &Value, audience: &str) -> Ruling<bool> {
        let claim = match value::text(volume, "persistentVolumeClaim.claimName") {
            "" if value::at(volume, "ephemeral.volumeClaimTemplate").is_some_and(Value::is_object) => {
                format!("{}-{}", value::text(pod, "metadata.name"), value::text(volume, "name"))
            }
            claim => claim.to_owned(),
        };
        let driver = if claim.is_empty() { driver_of(volume) } else { self.driver_of_claim(&claim).await? };
        if driver.is_empty() {
            return Ok(false);
        }
        let driver = self.stored("storage.k8s.io", "csidriver", &driver).await?.to_value();
        Ok(value::list(&driver, "spec.tokenRequests").iter().any(|asked| value::text(asked, "audience") == audience))
    }

    async fn driver_of_claim(&self, claim: &str) -> Ruling<String> {
        let claim = self.stored("", "persistentvolumeclaim", claim).await?.to_value();
        let volume = self.stored("", "persistentvolume", value::text(&claim, "spec.volumeName")).await?.to_value();
        Ok(driver_of(volume.get("spec").unwrap_or(&Value::Null)))
    }

    /// Whether somebody lets the node have more than its pods ask for.
    async fn may(&self, verb: &str, what: &str, account: &str) -> bool {
        let group = &self.request.resource.name.group;
        let question =
            Attributes { version: &self.request.facts.version, ..self.request.question(verb, group, what, account) };
        let verdict = self.authorizers.authorize(&question.in_namespace(&self.request.info.namespace)).await;
        verdict.decision == Decision::Allow
    }

    /// A certificate for a pod that runs on the node, as an account that it runs as, by a signer that it names.
    pub(super) async fn pod_certificate(&self) -> Ruling {
        let request = match (self.request.operation, self.new, self.request.info.subresource.as_str()) {
            (Operation::Create, Some(request), "") => request,
            (Operation::Create, _, subresource) => return refuse(format!("unexpected subresource {subresource}")),
            (operation, _, _) => return refuse(format!("unexpected operation {}", operation.name())),
        };
        let spec = |field: &str| value::text(request, &format!("spec.{field}"));
        let (node, signer) = (spec("nodeName"), spec("signerName"));
        if node != self.node {
            return refuse(format!(
                "PodCertificateRequest.Spec.NodeName={node:?}, which is not the requesting node {:?}",
                self.node
            ));
        }
        // What another server knows better is no refusal: the node may try again.
        let live = self.named_in_request("node", node, node).await?;
        let place = |name: &str| format!("{}/{name}", self.request.info.namespace);
        let pod_name = place(spec("podName"));
        if *live.meta().uid != *spec("nodeUID") {
            return later(format!(
                "PodCertificateRequest for pod {pod_name:?} names node UID {:?}, inconsistent with the running node ({:?})",
                spec("nodeUID"),
                live.meta().uid
            ));
        }
        let pod = self.named_in_request("pod", spec("podName"), &pod_name).await?.to_value();
        let (pod_uid, account) = (value::text(&pod, "metadata.uid"), value::text(&pod, "spec.serviceAccountName"));
        if pod_uid != spec("podUID") {
            return later(format!(
                "PodCertificateRequest for pod {pod_name:?} contains pod UID ({:?}) which differs from running pod {pod_uid:?}",
                spec("podUID")
            ));
        }
        if value::text(&pod, "spec.nodeName") != node {
            return refuse(format!(
                "pod {pod_name:?} is not running on node {node:?} named in the PodCertificateRequest"
            ));
        }
        if value::at(&pod, "metadata.annotations").is_some_and(|all| all.get(MIRROR).is_some()) {
            return refuse(format!("pod {pod_name:?} is a mirror pod"));
        }
        if spec("serviceAccountName") != account {
            return refuse(format!(
                "PodCertificateRequest for pod {pod_name:?} contains serviceAccountName ({:?}) that differs from running pod ({account:?})",
                spec("serviceAccountName")
            ));
        }
        let live = self.named_in_request("service account", account, &place(account)).await?;
        if *live.meta().uid != *spec("serviceAccountUID") {
            return later(format!(
                "PodCertificateRequest for pod {pod_name:?} names service account UID {:?}, which differs from the running service account ({:?})",
                spec("serviceAccountUID"),
                live.meta().uid
            ));
        }
        let is_asked = |source: &Value| {
            source.get("podCertificate").is_some_and(|asked| value::text(asked, "signerName") == signer)
        };
        let mut sources =
            value::list(&pod, "spec.volumes").iter().flat_map(|volume| value::list(volume, "projected.sources"));
        // A slash would begin a subresource in a rule.
        let rule = signer.replace('/', ":");
        if sources.any(is_asked) || self.may("request-serviceaccounts-podcertificate-signer", &rule, account).await {
            return Ok(());
        }
        refuse(format!("pod {pod_name:?} does not mount a podCertificate projected volume for signer {signer:?}"))
    }

    async fn named_in_request(&self, what: &str, name: &str, place: &str) -> Ruling<std::sync::Arc<machinery::Object>> {
        let found = self.stored("", &what.replace(' ', ""), name).await;
        found.map_err(|refusal| match refusal {
            Refusal::Answer(error) => {
                failed(format!("while retrieving {what} {place:?} named in the PodCertificateRequest: {error}"))
            }
            forbidden @ Refusal::Forbidden(_) => forbidden,
        })
    }
}

/// The CSI driver of a pod's or a persistent volume's source, also of one that it has taken over.
fn driver_of(source: &Value) -> String {
    let migrated = || MIGRATED.iter().find(|(kind, _)| source.get(kind).is_some_and(Value::is_object));
    match value::text(source, "csi.driver") {
        "" => migrated().map_or("", |(_, driver)| driver).to_owned(),
        driver => driver.to_owned(),
    }
}

/// The answer to what upstream's server does not call a refusal: 500, without a reason.
fn failed(why: String) -> Refusal {
    let mut error = ApiError::internal("");
    (error.reason, error.message, error.details) = (None, why, None);
    Refusal::Answer(Box::new(error))
}

fn later(why: String) -> Ruling {
    Err(failed(why))
}
