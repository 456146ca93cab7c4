//! The little DER that certificates need beyond what the certificate library writes: it can put only one organization
//! into a name, and a Kubernetes user may have many groups.

/// `O=` once per organization, then `CN=`.
pub(super) fn subject(common_name: &str, organizations: &[&str]) -> Vec<u8> {
    const ORGANIZATION: u8 = 10;
    const COMMON_NAME: u8 = 3;
    let mut names = Vec::new();
    for organization in organizations {
        names.extend(attribute(ORGANIZATION, organization));
    }
    names.extend(attribute(COMMON_NAME, common_name));
    wrap(0x30, &names)
}

/// One relative name: SET { SEQUENCE { OID 2.5.4.x, UTF8String } }.
fn attribute(kind: u8, text: &str) -> Vec<u8> {
    let mut pair = vec![0x06, 3, 0x55, 0x04, kind];
    pair.extend(wrap(0x0c, text.as_bytes()));
    wrap(0x31, &wrap(0x30, &pair))
}

/// A certificate with issuer and subject replaced, signed again by `sign`. `None` if `certificate` is no version-3
/// certificate or it could not be signed.
pub(super) fn with_names(
    certificate: &[u8],
    issuer: &[u8],
    subject: &[u8],
    sign: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let (outer, _) = element(certificate)?;
    let [body, algorithm, _signature] = children(outer)?[..] else { return None };
    // version, serial, algorithm, issuer, validity, subject, key, extensions
    let mut fields = children(body)?;
    if fields.len() < 7 {
        return None;
    }
    fields[3] = issuer;
    fields[5] = subject;
    let body = wrap(0x30, &fields.concat());
    let mut signature = vec![0]; // no unused bits
    signature.extend(sign(&body)?);
    Some(wrap(0x30, &[body.as_slice(), algorithm, &wrap(0x03, &signature)].concat()))
}

fn wrap(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(contents.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = contents.len().to_be_bytes();
            let used = bytes.iter().copied().skip_while(|b| *b == 0).collect::<Vec<_>>();
            out.push(0x80 | used.len() as u8); // at most 8
            out.extend(used);
        }
    }
    out.extend_from_slice(contents);
    out
}

/// The first element with its header, and what follows it.
fn element(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, length) = header(input)?;
    let end = header.checked_add(length)?;
    (end <= input.len()).then(|| input.split_at(end))
}

/// The elements inside a constructed one.
fn children(input: &[u8]) -> Option<Vec<&[u8]>> {
    let (start, _) = header(input)?;
    let mut rest = input.get(start..)?;
    let mut out = Vec::new();
    while !rest.is_empty() {
        let (one, more) = element(rest)?;
        out.push(one);
        rest = more;
    }
    Some(out)
}

/// Length of the header and of the contents.
fn header(input: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*input.get(1)?);
    if first < 0x80 {
        return Some((2, first));
    }
    let count = first & 0x7f;
    if count == 0 || count > 4 {
        return None;
    }
    let length = input.get(2..2 + count)?.iter().fold(0, |sum, b| sum << 8 | usize::from(*b));
    Some((2 + count, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn wrapped_contents_come_back(contents in prop::collection::vec(any::<u8>(), 0..700)) {
            let inner = wrap(0x04, &contents);
            let outer = wrap(0x30, &[inner.as_slice(), &inner].concat());
            prop_assert_eq!(element(&outer).unwrap(), (outer.as_slice(), &[][..]));
            prop_assert_eq!(children(&outer).unwrap(), vec![inner.as_slice(), &inner]);
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = element(&bytes);
            let _ = children(&bytes);
            let _ = with_names(&bytes, &[], &[], |_| Some(Vec::new()));
        }
    }
}
