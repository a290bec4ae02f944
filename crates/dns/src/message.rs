//! Requests off the wire and replies onto it: what is malformed, what is refused, EDNS, and what fits.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use crate::answer::Reply;

/// The largest datagram that crosses today's networks unharmed.
pub const PAYLOAD: u16 = 1232;
/// What a client without EDNS takes.
const PLAIN_PAYLOAD: u16 = 512;
/// The length of a header: less cannot even be refused.
const HEADER: usize = 12;

/// How a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    /// In a stream, with its length before it.
    Tcp,
}

/// A request that can be answered.
#[derive(Debug)]
pub struct Request {
    id: u16,
    recursion_desired: bool,
    checking_disabled: bool,
    edns: Option<(u16, bool)>,
    pub question: Query,
}

impl Request {
    /// Reads a request. An error is the reply to send instead, if any.
    pub fn parse(bytes: &[u8]) -> Result<Self, Option<Vec<u8>>> {
        let Ok(message) = Message::from_vec(bytes) else {
            // Only what looks like a request is worth an answer.
            let answerable = bytes.len() >= HEADER && bytes[2] & 0x80 == 0;
            let id = || u16::from_be_bytes([bytes[0], bytes[1]]);
            return Err(answerable.then(|| refusal(id(), OpCode::Query, ResponseCode::FormErr)));
        };
        let meta = message.metadata;
        if meta.message_type != MessageType::Query {
            return Err(None);
        }
        let refuse = |code| Err(Some(refusal(meta.id, meta.op_code, code)));
        if meta.op_code != OpCode::Query {
            return refuse(ResponseCode::NotImp);
        }
        let [question] = &message.queries[..] else { return refuse(ResponseCode::FormErr) };
        let mut request = Self {
            id: meta.id,
            recursion_desired: meta.recursion_desired,
            checking_disabled: meta.checking_disabled,
            edns: message.edns.as_ref().map(|edns| (edns.max_payload(), edns.flags().dnssec_ok)),
            question: question.clone(),
        };
        if message.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
            request.edns = Some((PLAIN_PAYLOAD, false));
            let reply = Reply { code: ResponseCode::BADVERS, ..Reply::default() };
            return Err(Some(request.reply(reply, false, Transport::Udp)));
        }
        if matches!(question.query_type, RecordType::AXFR | RecordType::IXFR) || question.query_class != DNSClass::IN {
            return Err(Some(request.reply(
                Reply { code: ResponseCode::Refused, ..Reply::default() },
                false,
                Transport::Udp,
            )));
        }
        Ok(request)
    }

    /// Whether the client wants signatures.
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|(_, ok)| ok)
    }

    /// The bytes of a reply, cut to what the client takes.
    pub fn reply(&self, reply: Reply, authoritative: bool, transport: Transport) -> Vec<u8> {
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.checking_disabled = self.checking_disabled;
        message.metadata.recursion_available = true;
        message.metadata.authoritative = authoritative;
        message.metadata.response_code = reply.code;
        message.queries.push(self.question.clone());
        message.answers = reply.answers;
        message.authorities = reply.authorities;
        message.additionals = reply.additionals;
        if let Some((_, dnssec_ok)) = self.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD);
            edns.set_dnssec_ok(dnssec_ok);
            message.edns = Some(edns);
        }
        let limit = match (transport, self.edns) {
            (Transport::Tcp, _) => usize::from(u16::MAX),
            (Transport::Udp, None) => PLAIN_PAYLOAD.into(),
            (Transport::Udp, Some((client, _))) => client.clamp(PLAIN_PAYLOAD, PAYLOAD).into(),
        };
        fit(message, limit)
    }
}

/// Leaves out additional records first, which nobody misses, then answers, which the truncation flag shows to the client.
fn fit(mut message: Message, limit: usize) -> Vec<u8> {
    loop {
        let bytes = encode(&message);
        match bytes {
            Some(bytes) if bytes.len() <= limit => return bytes,
            _ if !message.additionals.is_empty() => message.additionals.clear(),
            _ if !message.answers.is_empty() => {
                message.metadata.truncation = true;
                message.answers.truncate(message.answers.len() * 3 / 4);
            }
            _ if !message.authorities.is_empty() => {
                message.metadata.truncation = true;
                message.authorities.clear();
            }
            // A question that was read can be written; what remains is no longer than it was.
            _ => return refusal(message.metadata.id, OpCode::Query, ResponseCode::ServFail),
        }
    }
}

/// Nothing if a record cannot be written at all, or the whole is longer than any message may be.
fn encode(message: &Message) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(512);
    let mut encoder = BinEncoder::new(&mut bytes);
    message.emit(&mut encoder).ok()?;
    (bytes.len() <= usize::from(u16::MAX)).then_some(bytes)
}

/// A reply that only says no.
fn refusal(id: u16, op_code: OpCode, code: ResponseCode) -> Vec<u8> {
    encode(&Message::error_msg(id, op_code, code)).unwrap_or_default()
}

/// Turns the address records around, so that clients that take the first one spread over all.
pub fn rotate(answers: &mut [Record], by: usize) {
    let is_address = |r: &Record| matches!(r.record_type(), RecordType::A | RecordType::AAAA);
    if let Some(first) = answers.iter().position(is_address) {
        let addresses = &mut answers[first..];
        if addresses.iter().all(is_address) {
            addresses.rotate_left(by % addresses.len());
        }
    }
}
