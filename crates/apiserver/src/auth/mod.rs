//! Who asks, and may they: certificates, tokens, impersonation, RBAC and the review kinds.
//!
//! Nothing in here touches the store. Objects come in as JSON values, uids of accounts by a callback, so each part can
//! be tested on its own and the router decides what is read when.

mod defaults;
mod der;
mod escalation;
mod files;
mod identity;
mod impersonate;
mod jwt;
mod pki;
mod rbac;
mod reviews;
mod rule;
mod tokens;

pub use self::{
    defaults::default_rbac_objects,
    escalation::{check_binding_write, check_role_write, covers},
    identity::{Authenticator, PeerIdentity, User, is_public_path},
    impersonate::impersonate,
    jwt::{AccountKey, BoundKind, Claims, KeyProblem, ObjectRef, TokenProblem, Uids},
    pki::{Pki, PkiError},
    rbac::{Attributes, Decision, Policy, aggregated_rules, forbidden},
    reviews::{
        local_subject_access_review, self_subject_access_review, self_subject_review,
        self_subject_rules_review, subject_access_review, token_request, token_review,
    },
    rule::Rule,
    tokens::{StaticTokens, TokenFileError},
};
