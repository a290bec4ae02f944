//! What is said about a claim: which devices it got, and how they are.

use machinery::names;

use crate::checks::conditions::conditions;
use crate::checks::lists::{set, slice};
use crate::checks::{At, Errors};
use crate::core::pod::scheduling;
use crate::core::pod::volumes::csi_driver_name;
use crate::resource::devices::{MOST_CONFIGURATIONS, binding_conditions, configuration, pool_name, raw_object};
use crate::resource::resource_claim::{MOST_REQUESTS, device_toleration, request_reference, request_references};

const MOST_CONSUMERS: usize = 256;
pub const MOST_DEVICE_CONDITIONS: usize = 8;
const MOST_DEVICE_DATA: usize = 10 * 1024;
const MOST_INTERFACE_NAME: usize = 256;
const MOST_HARDWARE_ADDRESS: usize = 128;
const MOST_ADDRESSES: usize = 16;

pub fn claim_status(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (status, before) = (new.at("status"), old.at("status"));
    let (reserved, allocation) = (status.at("reservedFor"), status.at("allocation"));
    set(
        &reserved,
        MOST_CONSUMERS,
        |consumer| consumer.text_at("uid"),
        errors,
        |consumer, errors| {
            for field in ["resource", "name", "uid"] {
                errors.required_text(&consumer.at(field));
            }
        },
    );
    for device in status.at("devices").items() {
        device_status(&device, &allocation.at("devices.results"), errors);
    }
    if !reserved.is_empty() {
        let known = before.at("reservedFor");
        let added = |consumer: &At<'_, '_>| !known.items().any(|other| other.value() == consumer.value());
        if !allocation.is_set() {
            errors.forbidden(&reserved, "may not be specified when `allocated` is not set");
        } else if new.has("metadata.deletionTimestamp") && reserved.items().any(|consumer| added(&consumer)) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&reserved, detail);
        }
    }
    let allocated = before.at("allocation");
    match (allocation.is_set(), allocated.is_set()) {
        (true, true) => errors.immutable(&allocation, &allocated),
        (true, false) => allocation_result(&allocation, &new.at("spec.devices.requests"), errors),
        _ => {}
    }
}

fn allocation_result(at: &At<'_, '_>, requests: &At<'_, '_>, errors: &mut Errors) {
    let devices = at.at("devices");
    slice(&devices.at("results"), MOST_REQUESTS, errors, |result, errors| {
        request_reference(&result.at("request"), requests, errors);
        csi_driver_name(&result.at("driver"), errors);
        pool_name(&result.at("pool"), errors);
        let device = result.at("device");
        errors.problems(&device, names::is_dns1123_label(device.text()));
        binding_conditions(result, errors);
        for toleration in result.at("tolerations").items() {
            device_toleration(&toleration, errors);
        }
        share(&result.at("shareID"), errors);
    });
    slice(&devices.at("config"), 2 * MOST_CONFIGURATIONS, errors, |config, errors| {
        errors.required_one_of(&config.at("source"), &["FromClaim", "FromClass"]);
        request_references(&config.at("requests"), requests, errors);
        configuration(config, false, errors);
    });
    let nodes = at.at("nodeSelector");
    if nodes.is_set() {
        scheduling::node_selector(&nodes, errors);
    }
}

fn device_status(at: &At<'_, '_>, allocated: &At<'_, '_>, errors: &mut Errors) {
    csi_driver_name(&at.at("driver"), errors);
    pool_name(&at.at("pool"), errors);
    let device = at.at("device");
    errors.problems(&device, names::is_dns1123_label(device.text()));
    share(&at.at("shareID"), errors);
    let fields = ["driver", "pool", "device", "shareID"];
    if !allocated.items().any(|result| fields.iter().all(|field| result.text_at(field) == at.text_at(field))) {
        let id: Vec<&str> = fields.iter().map(|field| at.text_at(field)).filter(|part| !part.is_empty()).collect();
        errors.invalid_value(at, id.join("/"), "must be an allocated device in the claim");
    }
    let list = at.at("conditions");
    if list.len() > MOST_DEVICE_CONDITIONS {
        errors.too_many(&list, MOST_DEVICE_CONDITIONS);
    }
    conditions(&list, errors);
    if at.has("data") {
        raw_object(&at.at("data"), MOST_DEVICE_DATA, errors);
    }
    let network = at.at("networkData");
    for (field, most) in [("interfaceName", MOST_INTERFACE_NAME), ("hardwareAddress", MOST_HARDWARE_ADDRESS)] {
        let text = network.at(field);
        if text.text().len() > most {
            errors.too_long(&text, most);
        }
    }
    set(
        &network.at("ips"),
        MOST_ADDRESSES,
        |address| address.text(),
        errors,
        |address, errors| {
            let Some((ip, bits)) = names::ip::parse_cidr_sloppy(address.text()) else {
                let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
                return errors.invalid_text(address, detail);
            };
            let canonical = format!("{}/{bits}", names::ip::canonical(ip));
            if address.text() != canonical {
                errors.invalid_text(address, format!("must be in canonical form ({canonical:?})"));
            }
        },
    );
}

fn share(at: &At<'_, '_>, errors: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let text = at.text();
    match uuid::Uuid::parse_str(text) {
        Err(error) => errors.invalid_text(at, format!("error validating uid: {error}")),
        Ok(id) if id.hyphenated().to_string() != text => errors.invalid_text(at, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"),
        Ok(_) => {}
    }
}
