//! What upstream says about EndpointSlices.

use machinery::Value;
use serde_json::json;

use crate::discovery::endpoint_slice::EndpointSlices;
use crate::strategy::Strategy;

#[test]
fn slices_are_checked_in_upstreams_words() {
    let check = |slice: Value, expected: &[&str]| {
        let errors: Vec<String> = EndpointSlices.validate(&slice).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    };
    check(
        json!({"addressType": "IPv4", "ports": [{"name": "", "protocol": "TCP"}], "endpoints": [{"addresses": ["10.0.0.1"]}]}),
        &[],
    );
    check(
        json!({"addressType": "IPv4", "endpoints": [{"addresses": []}, {"addresses": ["::1", "127.0.0.1"]}]}),
        &[
            "endpoints[0].addresses: Required value",
            "endpoints[1].addresses: Invalid value: \"::1\": must be an IPv4 address",
            "endpoints[1].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "endpoints[1].addresses[1]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ],
    );
}
