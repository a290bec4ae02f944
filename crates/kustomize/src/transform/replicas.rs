//! How many replicas there are.

use machinery::Value;

use crate::Error;
use crate::fields::{FieldSpec, Make};
use crate::kustomization::Replica;
use crate::resources::Resources;

pub fn set(resources: &mut Resources, replica: &Replica, specs: &[FieldSpec]) -> Result<(), Error> {
    let mut found = false;
    for spec in specs {
        let gvk = spec.gvk();
        for at in resources.matching(|id| id.name == replica.name && id.gvk.is_selected(&gvk)) {
            found = true;
            spec.apply(resources.get_mut(at), Make::Scalar, &mut |field| {
                *field = Value::from(replica.count);
                Ok(())
            })?;
        }
    }
    if found {
        return Ok(());
    }
    let kinds: Vec<String> = specs.iter().map(|spec| spec.gvk().to_string()).collect();
    let (name, kinds) = (&replica.name, kinds.join(" "));
    Err(Error::new(format!("resource with name {name} does not match a config with the following GVK [{kinds}]")))
}
