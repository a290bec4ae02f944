//! What volumes can be made from, as data: the fields of each source that are shown, and how.

use machinery::{Value, value};

use crate::show::{at, bracketed, int, joined, mapped, or};

/// How a field is shown.
#[derive(Clone, Copy)]
pub enum Shown {
    /// A text; absent is empty.
    Text,
    /// A number; absent is 0.
    Number,
    /// A truth; absent is false.
    Flag,
    /// As it is, or a word where there is none.
    Or(&'static str),
    /// `[a b]`.
    List,
    /// `a, b`.
    Joined,
    /// `map[a:b]`.
    Map,
    /// A reference of this type, in the form of Go's generated types.
    Reference(&'static str, &'static [(&'static str, &'static str)]),
}

/// A kind of source: its field in a volume, what it is, and lines of title, path and form.
pub struct Source {
    pub field: &'static str,
    pub about: &'static str,
    pub lines: &'static [(&'static str, &'static str, Shown)],
}

use Shown::{Flag, Joined, List, Map, Number, Or, Reference, Text};

/// A secret in the namespace of the pod.
const LOCAL: Shown = Reference("LocalObjectReference", &[("Name", "name")]);
/// A secret anywhere.
const SECRET: Shown = Reference("SecretReference", &[("Name", "name"), ("Namespace", "namespace")]);

impl Shown {
    pub fn show(self, source: &Value, path: &str) -> String {
        match self {
            Text => value::text(source, path).to_owned(),
            Number => int(source, path).to_string(),
            Flag => value::flag(source, path).to_string(),
            Or(absent) => or(source, path, absent),
            List => bracketed(value::list(source, path)),
            Joined => joined(value::list(source, path), ", "),
            Map => mapped(at(source, path)),
            Reference(name, fields) => at(source, path).map_or_else(
                || "nil".to_owned(),
                |found| {
                    let fields = fields.iter().map(|(title, field)| format!("{title}:{},", value::text(found, field)));
                    format!("&{name}{{{}}}", fields.collect::<String>())
                },
            ),
        }
    }
}

const fn source(
    field: &'static str,
    about: &'static str,
    lines: &'static [(&'static str, &'static str, Shown)],
) -> Source {
    Source { field, about, lines }
}

macro_rules! iscsi {
    ($secret:expr) => {
        source(
            "iscsi",
            "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
            &[
                ("TargetPortal:", "targetPortal", Text),
                ("IQN:", "iqn", Text),
                ("Lun:", "lun", Number),
                ("ISCSIInterface", "iscsiInterface", Text),
                ("FSType:", "fsType", Text),
                ("ReadOnly:", "readOnly", Flag),
                ("Portals:", "portals", List),
                ("DiscoveryCHAPAuth:", "chapAuthDiscovery", Flag),
                ("SessionCHAPAuth:", "chapAuthSession", Flag),
                ("SecretRef:", "secretRef", $secret),
                ("InitiatorName:", "initiatorName", Or("<none>")),
            ],
        )
    };
}

macro_rules! rbd {
    ($secret:expr) => {
        source(
            "rbd",
            "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
            &[
                ("CephMonitors:", "monitors", List),
                ("RBDImage:", "image", Text),
                ("FSType:", "fsType", Text),
                ("RBDPool:", "pool", Text),
                ("RadosUser:", "user", Text),
                ("Keyring:", "keyring", Text),
                ("SecretRef:", "secretRef", $secret),
                ("ReadOnly:", "readOnly", Flag),
            ],
        )
    };
}

macro_rules! cinder {
    ($secret:expr) => {
        source(
            "cinder",
            "Cinder (a Persistent Disk resource in OpenStack)",
            &[
                ("VolumeID:", "volumeID", Text),
                ("FSType:", "fsType", Text),
                ("ReadOnly:", "readOnly", Flag),
                ("SecretRef:", "secretRef", $secret),
            ],
        )
    };
}

macro_rules! ceph_fs {
    ($secret:expr) => {
        source(
            "cephfs",
            "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
            &[
                ("Monitors:", "monitors", List),
                ("Path:", "path", Text),
                ("User:", "user", Text),
                ("SecretFile:", "secretFile", Text),
                ("SecretRef:", "secretRef", $secret),
                ("ReadOnly:", "readOnly", Flag),
            ],
        )
    };
}

macro_rules! flex {
    ($secret:expr) => {
        source(
            "flexVolume",
            "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
            &[
                ("Driver:", "driver", Text),
                ("FSType:", "fsType", Text),
                ("SecretRef:", "secretRef", $secret),
                ("ReadOnly:", "readOnly", Flag),
                ("Options:", "options", Map),
            ],
        )
    };
}

const HOST_PATH: Source = source(
    "hostPath",
    "HostPath (bare host directory volume)",
    &[("Path:", "path", Text), ("HostPathType:", "type", Or("<none>"))],
);
const GCE: Source = source(
    "gcePersistentDisk",
    "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
    &[
        ("PDName:", "pdName", Text),
        ("FSType:", "fsType", Text),
        ("Partition:", "partition", Number),
        ("ReadOnly:", "readOnly", Flag),
    ],
);
const AWS: Source = source(
    "awsElasticBlockStore",
    "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
    &[
        ("VolumeID:", "volumeID", Text),
        ("FSType:", "fsType", Text),
        ("Partition:", "partition", Number),
        ("ReadOnly:", "readOnly", Flag),
    ],
);
const NFS: Source = source(
    "nfs",
    "NFS (an NFS mount that lasts the lifetime of a pod)",
    &[("Server:", "server", Text), ("Path:", "path", Text), ("ReadOnly:", "readOnly", Flag)],
);
const QUOBYTE: Source = source(
    "quobyte",
    "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
    &[("Registry:", "registry", Text), ("Volume:", "volume", Text), ("ReadOnly:", "readOnly", Flag)],
);
const VSPHERE: Source = source(
    "vsphereVolume",
    "vSphereVolume (a Persistent Disk resource in vSphere)",
    &[
        ("VolumePath:", "volumePath", Text),
        ("FSType:", "fsType", Text),
        ("StoragePolicyName:", "storagePolicyName", Text),
    ],
);
const AZURE_DISK: Source = source(
    "azureDisk",
    "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
    &[
        ("DiskName:", "diskName", Text),
        ("DiskURI:", "diskURI", Text),
        ("Kind: ", "kind", Text),
        ("FSType:", "fsType", Text),
        ("CachingMode:", "cachingMode", Text),
        ("ReadOnly:", "readOnly", Flag),
    ],
);
const PHOTON: Source = source(
    "photonPersistentDisk",
    "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
    &[("PdID:", "pdID", Text), ("FSType:", "fsType", Text)],
);
const PORTWORX: Source =
    source("portworxVolume", "PortworxVolume (a Portworx Volume resource)", &[("VolumeID:", "volumeID", Text)]);
const FC: Source = source(
    "fc",
    "FC (a Fibre Channel disk)",
    &[
        ("TargetWWNs:", "targetWWNs", Joined),
        ("LUN:", "lun", Or("<none>")),
        ("FSType:", "fsType", Text),
        ("ReadOnly:", "readOnly", Flag),
    ],
);
const FLOCKER: Source = source(
    "flocker",
    "Flocker (a Flocker volume mounted by the Flocker agent)",
    &[("DatasetName:", "datasetName", Text), ("DatasetUUID:", "datasetUUID", Text)],
);
const STORAGE_OS: Source = source(
    "storageos",
    "StorageOS (a StorageOS Persistent Disk resource)",
    &[
        ("VolumeName:", "volumeName", Text),
        ("VolumeNamespace:", "volumeNamespace", Text),
        ("FSType:", "fsType", Text),
        ("ReadOnly:", "readOnly", Flag),
    ],
);
const SCALE_IO: &str = "ScaleIO (a persistent volume backed by a block device in ScaleIO)";
const GLUSTERFS: &str = "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)";
const AZURE_FILE: &str = "AzureFile (an Azure File Service mount on the host and bind mount to the pod)";
const CSI: &str = "CSI (a Container Storage Interface (CSI) volume source)";

/// Sources of a pod's volumes, in the order in which the first one that is there counts. Those that are missing are made of more than
/// fields.
pub static OF_PODS: &[Source] = &[
    HOST_PATH,
    source(
        "emptyDir",
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        &[("Medium:", "medium", Text), ("SizeLimit:", "sizeLimit", Or("<unset>"))],
    ),
    GCE,
    AWS,
    source(
        "gitRepo",
        "GitRepo (a volume that is pulled from git when the pod is created)",
        &[("Repository:", "repository", Text), ("Revision:", "revision", Text)],
    ),
    source(
        "secret",
        "Secret (a volume populated by a Secret)",
        &[("SecretName:", "secretName", Text), ("Optional:", "optional", Flag)],
    ),
    source(
        "configMap",
        "ConfigMap (a volume populated by a ConfigMap)",
        &[("Name:", "name", Text), ("Optional:", "optional", Flag)],
    ),
    NFS,
    iscsi!(LOCAL),
    source(
        "glusterfs",
        GLUSTERFS,
        &[("EndpointsName:", "endpoints", Text), ("Path:", "path", Text), ("ReadOnly:", "readOnly", Flag)],
    ),
    source(
        "persistentVolumeClaim",
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        &[("ClaimName:", "claimName", Text), ("ReadOnly:", "readOnly", Flag)],
    ),
    source(
        "ephemeral",
        "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
        &[],
    ),
    rbd!(LOCAL),
    QUOBYTE,
    source("downwardAPI", "DownwardAPI (a volume populated by information about the pod)", &[]),
    AZURE_DISK,
    VSPHERE,
    cinder!(LOCAL),
    PHOTON,
    PORTWORX,
    source(
        "scaleIO",
        SCALE_IO,
        &[
            ("Gateway:", "gateway", Text),
            ("System:", "system", Text),
            ("Protection Domain:", "protectionDomain", Text),
            ("Storage Pool:", "storagePool", Text),
            ("Storage Mode:", "storageMode", Text),
            ("VolumeName:", "volumeName", Text),
            ("FSType:", "fsType", Text),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    ceph_fs!(LOCAL),
    STORAGE_OS,
    FC,
    source(
        "azureFile",
        AZURE_FILE,
        &[("SecretName:", "secretName", Text), ("ShareName:", "shareName", Text), ("ReadOnly:", "readOnly", Flag)],
    ),
    flex!(LOCAL),
    FLOCKER,
    source("projected", "Projected (a volume that contains injected data from multiple sources)", &[]),
    source("csi", CSI, &[("Driver:", "driver", Text), ("FSType:", "fsType", Text), ("ReadOnly:", "readOnly", Flag)]),
    source(
        "image",
        "Image (a container image or OCI artifact)",
        &[("Reference:", "reference", Text), ("PullPolicy:", "pullPolicy", Text)],
    ),
];

/// Sources of persistent volumes.
pub static OF_PERSISTENT_VOLUMES: &[Source] = &[
    HOST_PATH,
    GCE,
    AWS,
    NFS,
    iscsi!(SECRET),
    source(
        "glusterfs",
        GLUSTERFS,
        &[
            ("EndpointsName:", "endpoints", Text),
            ("EndpointsNamespace:", "endpointsNamespace", Or("<unset>")),
            ("Path:", "path", Text),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    rbd!(SECRET),
    QUOBYTE,
    VSPHERE,
    cinder!(SECRET),
    AZURE_DISK,
    PHOTON,
    PORTWORX,
    source(
        "scaleIO",
        SCALE_IO,
        &[
            ("Gateway:", "gateway", Text),
            ("System:", "system", Text),
            ("Protection Domain:", "protectionDomain", Text),
            ("Storage Pool:", "storagePool", Text),
            ("Storage Mode:", "storageMode", Text),
            ("VolumeName:", "volumeName", Text),
            ("SecretName:", "secretRef.name", Text),
            ("SecretNamespace:", "secretRef.namespace", Text),
            ("FSType:", "fsType", Text),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    source("local", "LocalVolume (a persistent volume backed by local storage on a node)", &[("Path:", "path", Text)]),
    ceph_fs!(SECRET),
    STORAGE_OS,
    FC,
    source(
        "azureFile",
        AZURE_FILE,
        &[
            ("SecretName:", "secretName", Text),
            ("SecretNamespace:", "secretNamespace", Text),
            ("ShareName:", "shareName", Text),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
    flex!(SECRET),
    FLOCKER,
    source(
        "csi",
        CSI,
        &[
            ("Driver:", "driver", Text),
            ("FSType:", "fsType", Text),
            ("VolumeHandle:", "volumeHandle", Text),
            ("ReadOnly:", "readOnly", Flag),
        ],
    ),
];
