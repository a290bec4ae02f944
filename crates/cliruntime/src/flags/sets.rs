//! Flags that several commands share.

use super::Flag;

/// Flags of every command.
pub static GLOBAL: &[&[Flag]] = &[&[
    Flag::string("as", "", "User to act as."),
    Flag::array("as-group", "Group to act as; may be given often."),
    Flag::string("as-uid", "", "Unique id to act as."),
    Flag::array("as-user-extra", "More about the user to act as, as key=value; may be given often."),
    Flag::string("cache-dir", "", "Where discovery is remembered."),
    Flag::string("certificate-authority", "", "File with the authority of the server's certificate."),
    Flag::string("client-certificate", "", "File with the client's certificate."),
    Flag::string("client-key", "", "File with the client's key."),
    Flag::string("cluster", "", "Cluster of the kubeconfig to use."),
    Flag::string("context", "", "Context of the kubeconfig to use."),
    Flag::bool("disable-compression", "Do not ask for compressed answers."),
    Flag::bool("insecure-skip-tls-verify", "Believe any certificate of the server."),
    Flag::string("kubeconfig", "", "The kubeconfig to use."),
    Flag::string("kuberc", "", "File with preferences."),
    Flag::plain_duration("log-flush-frequency", "5s", "How often logs are written."),
    Flag::bool("match-server-version", "Refuse a server of another version."),
    Flag::string("namespace", "", "Namespace of this request.").short('n'),
    Flag::string("password", "", "Password for basic authentication."),
    Flag::string("profile", "none", "Name of a profile to capture."),
    Flag::string("profile-output", "profile.pprof", "File for the profile."),
    Flag::string("proxy-url", "", "Proxy for requests to the server."),
    Flag::string("request-timeout", "0", "How long one request may take; 0 is without limit."),
    Flag::string("server", "", "Address of the API server.").short('s'),
    Flag::string("tls-server-name", "", "Name in the server's certificate."),
    Flag::string("token", "", "Bearer token."),
    Flag::string("user", "", "User of the kubeconfig to use."),
    Flag::string("username", "", "Name for basic authentication."),
    Flag::int("v", "0", "How much is logged.").short('v'),
    Flag::levels("vmodule", "How much is logged per file."),
    Flag::bool("warnings-as-errors", "A warning of the server is a failure."),
]];

/// `-o` and what goes with it, for commands that print objects.
pub static PRINT: &[Flag] = &[
    Flag::string("output", "", "Output format.").short('o'),
    Flag::string("template", "", "Template or file for formats that need one."),
    Flag::bool("allow-missing-template-keys", "Fields that are missing are no error.").default("true"),
    Flag::bool("show-managed-fields", "Show metadata.managedFields."),
];

/// Files, and how they are read.
pub static FILENAME: &[Flag] = &[
    Flag::slice("filename", "Files or directories with objects; - is standard input.").short('f'),
    Flag::string("kustomize", "", "Directory with a kustomization.").short('k'),
    Flag::bool("recursive", "Look into directories below.").short('R'),
];

/// The same for commands that look into directories anyway.
pub static FILENAME_DEEP: &[Flag] = &[FILENAME[0], FILENAME[1], RECURSIVE_ANYWAY];

/// Files alone, and what is below them.
pub static FILES_DEEP: &[Flag] = &[FILENAME[0], RECURSIVE_ANYWAY];

const RECURSIVE_ANYWAY: Flag = Flag::bool("recursive", "Look into directories below.").short('R').default("true");

pub static DRY_RUN: &[Flag] =
    &[Flag::string("dry-run", "none", "none, client or server: what is only shown.").or_bare("unchanged")];

pub static SELECTOR: &[Flag] = &[Flag::string("selector", "", "Label query.").short('l')];

pub static FIELD_SELECTOR: &[Flag] = &[Flag::string("field-selector", "", "Field query.")];

pub static ALL_NAMESPACES: &[Flag] = &[Flag::bool("all-namespaces", "Look into every namespace.").short('A')];

pub static ALL: &[Flag] = &[Flag::bool("all", "Every object of the given types.")];

pub static CHUNK_SIZE: &[Flag] = &[Flag::int("chunk-size", "500", "How many objects one answer has; 0 is all.")];

pub static CONTAINER: &[Flag] = &[Flag::string("container", "", "The container.").short('c')];

pub static LOCAL: &[Flag] = &[Flag::bool("local", "Ask no server; work on files alone.")];

pub static VALIDATE: &[Flag] = &[Flag::string("validate", "strict", "strict, warn or ignore.").or_bare("strict")];

pub static SAVE_CONFIG: &[Flag] = &[Flag::bool("save-config", "Remember the configuration in an annotation.")];

pub static RECORD: &[Flag] =
    &[Flag::bool("record", "Note the command line in the object.")
        .deprecated("--record will be removed in the future")];

/// Each command that writes has a default name under which it owns fields.
pub const fn field_manager(default: &'static str) -> Flag {
    Flag::string("field-manager", default, "Name under which fields are owned.")
}
