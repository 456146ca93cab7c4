//! Fills a new state with what a site has.

use super::rules::{Rule, Source, parse_cidr};
use super::site::{AwsSite, SiteRule};
use super::state::{Group, Image, Key, State, Subnet, Tags, Vpc};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The vendor keeps the first four addresses of a subnet and the last one.
const KEPT: u32 = 5;

pub(super) fn furnish(state: &mut State, site: &AwsSite) {
    for key in &site.keys {
        let arn = format!("arn:aws:iam::{}:user/{}", site.account, key.user);
        let made =
            Key { secret: key.secret.clone(), token: key.session_token.clone(), expires: key.expires, arn };
        state.keys.insert(key.id.clone(), made);
    }
    for vpc in &site.vpcs {
        let cidr = parse_cidr(&vpc.cidr).unwrap_or((Ipv4Addr::new(10, 0, 0, 0), 16));
        state.vpcs.insert(vpc.id.clone(), Vpc { cidr, tags: Tags::new() });
    }
    default_groups(state, site);
    for subnet in &site.subnets {
        let cidr = parse_cidr(&subnet.cidr).unwrap_or((Ipv4Addr::new(10, 0, 0, 0), 24));
        let size = 1_u32.checked_shl(32 - u32::from(cidr.1)).unwrap_or(u32::MAX).saturating_sub(KEPT);
        let made = Subnet {
            vpc: subnet.vpc.clone(),
            zone: subnet.zone.clone(),
            cidr,
            public: subnet.public,
            room: subnet.free.unwrap_or(size).min(size),
            taken: BTreeSet::new(),
            tags: Tags::new(),
        };
        state.subnets.insert(subnet.id.clone(), made);
    }
    for group in &site.groups {
        let ingress = group.ingress.iter().filter_map(rule).map(|rule| (state.id("sgr"), rule));
        let ingress: BTreeMap<String, Rule> = ingress.collect();
        let made = Group {
            name: group.name.clone(),
            description: "made before".to_string(),
            vpc: group.vpc.clone(),
            ingress,
            tags: Tags::new(),
        };
        state.groups.insert(group.id.clone(), made);
        state.furniture.insert(group.id.clone());
    }
    for image in &site.images {
        let made = Image {
            name: image.name.clone(),
            owner: image.owner.clone(),
            architecture: image.architecture.clone(),
            talos_version: image.talos_version.clone(),
            size: image.size,
            tags: Tags::new(),
        };
        state.images.insert(image.id.clone(), made);
    }
}

/// Every network has a group that lets its own members in, and nobody else.
fn default_groups(state: &mut State, site: &AwsSite) {
    let has = |vpc: &str| site.groups.iter().any(|group| group.vpc == vpc && group.name == "default");
    for vpc in site.vpcs.iter().filter(|vpc| !has(&vpc.id)) {
        let id = state.id("sg");
        let own = Rule {
            protocol: "-1".to_string(),
            from: -1,
            to: -1,
            source: Source::Group(id.clone()),
            description: None,
        };
        let made = Group {
            name: "default".to_string(),
            description: "default VPC security group".to_string(),
            vpc: vpc.id.clone(),
            ingress: BTreeMap::from([(state.id("sgr"), own)]),
            tags: Tags::new(),
        };
        state.furniture.insert(id.clone());
        state.groups.insert(id, made);
    }
}

fn rule(rule: &SiteRule) -> Option<Rule> {
    let source = match parse_cidr(&rule.source) {
        Some(range) => Source::Cidr(rule.source.clone(), range),
        None if rule.source.starts_with("sg-") => Source::Group(rule.source.clone()),
        None => return None,
    };
    let (from, to) =
        if rule.protocol == "-1" { (-1, -1) } else { (i64::from(rule.from), i64::from(rule.to)) };
    Some(Rule { protocol: rule.protocol.clone(), from, to, source, description: None })
}
