//! `Debug` for messages that carry secrets: what they are about, and nothing else.

use std::fmt::{Debug, Formatter, Result};

use crate::v1;

macro_rules! about {
    ($($message:ident: $field:ident;)*) => {
        $(impl Debug for v1::$message {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                f.debug_struct(stringify!($message)).field(stringify!($field), &self.$field).finish_non_exhaustive()
            }
        })*
    };
}

about! {
    CreateVolumeRequest: name;
    DeleteVolumeRequest: volume_id;
    ControllerPublishVolumeRequest: volume_id;
    ControllerUnpublishVolumeRequest: volume_id;
    ControllerExpandVolumeRequest: volume_id;
    NodeStageVolumeRequest: volume_id;
    NodePublishVolumeRequest: volume_id;
    NodeExpandVolumeRequest: volume_id;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let request = v1::NodeStageVolumeRequest {
            volume_id: "v".into(),
            secrets: [("key".to_owned(), "hush".to_owned())].into(),
            ..Default::default()
        };
        assert_eq!(format!("{request:?}"), "NodeStageVolumeRequest { volume_id: \"v\", .. }");
    }
}
