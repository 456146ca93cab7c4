//! MetalLB's pool: which addresses it hands out, and that it announces them by ARP.

use super::objects::meta;
use super::site::Site;
use butler_drivers::{Class, Failure};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "metallb-system";
const POOL: &str = "default-pool";

pub(crate) fn objects(site: &Site<'_>) -> Result<Vec<Value>, Failure> {
    let Some(pool) = &site.spec.network.load_balancer_pool else {
        return Err(Failure::new(
            Class::InvalidConfig,
            "PoolMissing",
            "MetalLB has no addresses to hand out: network.loadBalancerPool is not set",
            "set network.loadBalancerPool, or addons.loadBalancer.type to none",
        ));
    };
    let range = format!("{}-{}", pool.start, pool.end);
    Ok(vec![
        json!({
            "apiVersion": "metallb.io/v1beta1",
            "kind": "IPAddressPool",
            "metadata": meta(NAMESPACE, POOL),
            "spec": { "addresses": [range], "autoAssign": true },
        }),
        json!({
            "apiVersion": "metallb.io/v1beta1",
            "kind": "L2Advertisement",
            "metadata": meta(NAMESPACE, "default"),
            "spec": { "ipAddressPools": [POOL] },
        }),
    ])
}
