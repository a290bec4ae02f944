//! How full the volumes of claims are.

use std::collections::BTreeMap;

use figures::samples;

use super::super::stats::types::{ClaimReference, Fs, VolumeStats};

type Figure = (&'static str, &'static str, fn(&Fs) -> u64);

const FIGURES: [Figure; 6] = [
    ("kubelet_volume_stats_available_bytes", "[ALPHA] Number of available bytes in the volume", |fs| {
        fs.available_bytes
    }),
    ("kubelet_volume_stats_capacity_bytes", "[ALPHA] Capacity in bytes of the volume", |fs| fs.capacity_bytes),
    ("kubelet_volume_stats_inodes", "[ALPHA] Maximum number of inodes in the volume", |fs| fs.inodes),
    ("kubelet_volume_stats_inodes_free", "[ALPHA] Number of free inodes in the volume", |fs| fs.inodes_free),
    ("kubelet_volume_stats_inodes_used", "[ALPHA] Number of used inodes in the volume", |fs| fs.inodes_used),
    ("kubelet_volume_stats_used_bytes", "[ALPHA] Number of used bytes in the volume", |fs| fs.used_bytes),
];

/// Appends the figures, once for each claim however many pods have its volume.
pub fn render<'a>(text: &mut String, volumes: impl Iterator<Item = &'a VolumeStats>) {
    let mut claims: BTreeMap<&ClaimReference, &Fs> = BTreeMap::new();
    for volume in volumes {
        if let Some(claim) = &volume.claim {
            claims.entry(claim).or_insert(&volume.fs);
        }
    }
    // A family without a series would tell nothing.
    if claims.is_empty() {
        return;
    }
    for (name, help, read) in FIGURES {
        let mut family = samples(text, name, "gauge", help);
        for (claim, fs) in &claims {
            let labels = [("namespace", claim.namespace.as_str()), ("persistentvolumeclaim", claim.name.as_str())];
            family.add(&labels, read(fs) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn every_claim_is_told_of_once_and_other_volumes_are_not() {
        let fs = Fs {
            time: Timestamp::UNIX_EPOCH,
            available_bytes: 6,
            capacity_bytes: 10,
            used_bytes: 4,
            inodes_free: 2,
            inodes: 3,
            inodes_used: 1,
        };
        let claim = Some(ClaimReference { name: "c".into(), namespace: "ns".into() });
        let volume = |claim| VolumeStats { fs: fs.clone(), name: "v".into(), claim };
        let mut text = String::new();
        render(&mut text, [volume(None)].iter());
        assert_eq!(text, "");
        render(&mut text, [volume(claim.clone()), volume(claim)].iter());
        let line = "kubelet_volume_stats_available_bytes{namespace=\"ns\",persistentvolumeclaim=\"c\"} 6\n";
        assert_eq!(text.matches(line).count(), 1, "{text}");
        for (name, value) in
            [("capacity_bytes", 10), ("used_bytes", 4), ("inodes", 3), ("inodes_free", 2), ("inodes_used", 1)]
        {
            let line = format!("kubelet_volume_stats_{name}{{namespace=\"ns\",persistentvolumeclaim=\"c\"}} {value}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
