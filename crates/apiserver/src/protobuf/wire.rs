//! The bytes of protobuf: numbered fields, each a number or a run of bytes.

/// Groups, long out of use, may contain each other; nobody needs more than a few.
const MAX_GROUPS: usize = 32;

/// What a field holds, before its type is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
    /// A group, whose content is of no use here.
    Group,
}

/// Reads fields off the front of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

const END: &str = "unexpected EOF";

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's number and content; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let payload = match wire_type {
            3 => {
                self.skip_group()?;
                Payload::Group
            }
            4 => return Err("proto: wiretype end group for non-group".into()),
            _ => self.payload(wire_type)?,
        };
        Ok(Some((number, payload)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = *self.rest.first().ok_or(END)?;
            self.rest = &self.rest[1..];
            // Bits that do not fit fall off, as in Go.
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".into())
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?;
        bytes.try_into().map(u64::from_le_bytes).map_err(|_| END.to_string())
    }

    fn tag(&mut self) -> Result<(u32, u8), String> {
        let tag = self.varint()?;
        let wire_type = (tag & 7) as u8;
        match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 => Ok((number, wire_type)),
            _ => Err(format!("proto: illegal tag {} (wire type {wire_type})", tag >> 3)),
        }
    }

    fn payload(&mut self, wire_type: u8) -> Result<Payload<'a>, String> {
        Ok(match wire_type {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(self.fixed64()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| END)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Payload::Fixed32(bytes.try_into().map(u32::from_le_bytes).map_err(|_| END)?)
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        })
    }

    fn skip_group(&mut self) -> Result<(), String> {
        let mut open = 1;
        while open > 0 {
            match self.tag()?.1 {
                3 if open == MAX_GROUPS => return Err("proto: groups are nested too deeply".into()),
                3 => open += 1,
                4 => open -= 1,
                wire_type => {
                    self.payload(wire_type)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(END)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl Payload<'_> {
    /// How the wire calls it.
    pub(super) fn wire_type(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32(_) => 5,
        }
    }
}

/// Text as Go writes it into JSON: what is not UTF-8 becomes the replacement character.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
