//! What the machine's SELinux says about files of containers: whether it is on, and which label they get unless somebody asks for another one.

use std::path::Path;

/// A label: `user:role:type:level`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: String,
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { user, role, kind, level } = self;
        write!(f, "{user}:{role}:{kind}:{level}")
    }
}

/// The label of files that containers use, where labels mean something on this machine.
pub fn file_label() -> Option<Label> {
    file_label_below(Path::new("/"))
}

fn file_label_below(root: &Path) -> Option<Label> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    read("sys/fs/selinux/enforce")?;
    let config = read("etc/selinux/config")?;
    let policy = setting(&config, "SELINUXTYPE")?;
    let contexts = read(&format!("etc/selinux/{policy}/contexts/lxc_contexts"))
        .or_else(|| read("usr/share/containers/selinux/contexts"))?;
    let file = setting(&contexts, "file")?;
    let mut parts = file.splitn(4, ':').map(str::to_owned);
    Some(Label { user: parts.next()?, role: parts.next()?, kind: parts.next()?, level: parts.next()? })
}

/// What a file of lines like `name = "value"` says of a name.
fn setting(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let mut found = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().trim_matches('"'));
    found.next_back().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_is_the_policys_where_there_is_one() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(file_label_below(root.path()), None);
        write("etc/selinux/config", "# SELINUX=disabled\nSELINUX=enforcing\nSELINUXTYPE=targeted\n");
        let contexts =
            "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n";
        write("etc/selinux/targeted/contexts/lxc_contexts", contexts);
        assert_eq!(file_label_below(root.path()), None, "it is installed, and not on");
        write("sys/fs/selinux/enforce", "1");
        assert_eq!(file_label_below(root.path()).unwrap().to_string(), "system_u:object_r:container_file_t:s0");
    }
}
