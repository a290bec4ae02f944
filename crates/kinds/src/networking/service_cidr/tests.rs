//! What upstream says about ServiceCIDRs.

use machinery::Value;
use serde_json::json;

use crate::testing::{change, create};
use crate::tests::NETWORKING;

#[test]
fn ranges_of_services_stay_and_gain_the_other_family() {
    let ranges = |list: Value| json!({"metadata": {"name": "r"}, "spec": {"cidrs": list}});
    let twice = "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.0/16\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
    create(NETWORKING, "ServiceCIDR", ranges(json!(["10.0.0.0/16", "10.1.0.0/16"])), &[twice]);
    create(NETWORKING, "ServiceCIDR", ranges(json!([])), &["spec.cidrs: Required value: at least one CIDR required"]);
    let old = || ranges(json!(["10.0.0.0/16"]));
    let check = |list: Value, expect: &[&str]| change(NETWORKING, "ServiceCIDR", old(), ranges(list), expect);
    check(json!(["10.0.0.0/16", "fd00::/64"]), &[]);
    check(json!(["10.0.0.0/16", "10.1.0.0/16"]), &[twice]);
    check(json!([""]), &["spec.cidrs[0]: Invalid value: \"\": field is immutable"]);
    check(json!(["a", "b", "c"]), &["spec.cidrs: Invalid value: [\"a\",\"b\",\"c\"]: field is immutable"]);
}
