//! Messages are decoded by a small decoder of their own, which knows only RFC 7011.

use std::collections::BTreeMap;

use fabric::PortIndex;
use metering::ANYWHERE;

use super::*;

const NOW: u64 = 1_700_000_000 * SECOND;

/// Values of a data record by element; enterprises' elements have their number plus 0x10000.
type Values = BTreeMap<u32, Vec<Vec<u8>>>;

/// A collector: templates by domain and id.
#[derive(Default)]
struct Collector {
    templates: HashMap<(u32, u16), Vec<(u32, u16)>>,
    records: Vec<(u32, u16, Values)>,
    sequence: HashMap<u32, u32>,
    /// Templates that came, and messages.
    received: usize,
    messages: usize,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(length);
        self.0 = rest;
        head
    }

    fn number(&mut self, length: usize) -> u64 {
        self.take(length).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl Collector {
    fn take(&mut self, message: &[u8]) {
        self.messages += 1;
        assert!(message.len() <= MAX_MESSAGE, "{} bytes", message.len());
        let mut reader = Reader(message);
        assert_eq!((reader.number(2), reader.number(2) as usize), (10, message.len()));
        assert_eq!(reader.number(4), NOW / SECOND);
        let (sequence, domain) = (reader.number(4) as u32, reader.number(4) as u32);
        assert_eq!(sequence, *self.sequence.entry(domain).or_default(), "domain {domain}");
        while !reader.0.is_empty() {
            let (id, length) = (reader.number(2) as u16, reader.number(2) as usize);
            let mut set = Reader(reader.take(length - 4));
            while !set.0.is_empty() {
                match id {
                    TEMPLATES | OPTIONS_TEMPLATES => self.template(domain, id, &mut set),
                    _ => self.record(domain, id, &mut set),
                }
            }
        }
    }

    fn template(&mut self, domain: u32, set: u16, reader: &mut Reader<'_>) {
        let (id, count) = (reader.number(2) as u16, reader.number(2));
        if set == OPTIONS_TEMPLATES {
            assert_eq!(reader.number(2), 1, "one scope");
        }
        let mut fields = Vec::new();
        for _ in 0..count {
            let (element, length) = (reader.number(2) as u32, reader.number(2) as u16);
            let element = if element & 0x8000 != 0 {
                assert_eq!(reader.number(4), 6876);
                element & 0x7fff | 0x10000
            } else {
                element
            };
            fields.push((element, length));
        }
        self.templates.insert((domain, id), fields);
        self.received += 1;
    }

    fn record(&mut self, domain: u32, id: u16, reader: &mut Reader<'_>) {
        let fields = self.templates.get(&(domain, id)).expect("the template came before");
        let mut values = Values::new();
        for (element, length) in fields {
            let length = if *length == u16::MAX { reader.number(1) as usize } else { usize::from(*length) };
            values.entry(*element).or_default().push(reader.take(length).to_vec());
        }
        self.records.push((domain, id, values));
        *self.sequence.entry(domain).or_default() += 1;
    }
}

fn number(values: &Values, element: u32) -> Option<u64> {
    let value = values.get(&element)?.first()?;
    Some(Reader(value).number(value.len()))
}

fn settings() -> Settings {
    Settings { template_interval: 600, statistics_interval: 600, virtual_id: None }
}

fn random_key() -> FlowKey {
    let mut key = FlowKey {
        ingress: PortIndex(fastrand::u16(..)),
        egress: ANYWHERE,
        way: if fastrand::bool() { Way::In } else { Way::Out },
        tci: fastrand::bool().then(|| fastrand::u16(..)),
        mac_source: [2, 0, 0, 0, 0, fastrand::u8(..)],
        mac_destination: [2, 1, 0, 0, 0, fastrand::u8(..)],
        ethertype: 0x0800,
        ip_version: *fastrand::choice(&[0, 4, 6]).unwrap(),
        protocol: *fastrand::choice(&[1, 2, 6, 17, 58, 132, 255]).unwrap(),
        tos: fastrand::u8(..),
        source: fastrand::u128(..).to_be_bytes(),
        destination: fastrand::u128(..).to_be_bytes(),
        ports: [fastrand::u16(..), fastrand::u16(..)],
        observation: [0; 2],
    };
    if key.ip_version == 0 {
        key.protocol = 0;
    }
    key
}

fn random_counts() -> Counts {
    let mut counts = Counts::of_packet(NOW - fastrand::u64(..SECOND), 1500, 1486, fastrand::u8(..), false);
    counts.packets = fastrand::u64(..);
    counts.octets = fastrand::u64(..);
    counts.dropped_packets = fastrand::u64(..);
    counts
}

/// The values that a record is to have.
fn expected(record: &Record<'_>) -> Vec<(u32, u64)> {
    let (key, counts) = (record.key, record.counts);
    let mut values = vec![
        (138, record.point.into()),
        (61, (key.way == Way::Out).into()),
        (56, Reader(&key.mac_source).number(6)),
        (80, Reader(&key.mac_destination).number(6)),
        (256, key.ethertype.into()),
        (10, record.input.index.into()),
        (2, counts.packets),
        (133, counts.dropped_packets),
        (352, counts.bytes),
        (152, counts.first / 1_000_000),
        (153, counts.last / 1_000_000),
        (136, record.end as u64),
        (240, if key.tci.is_some() { 18 } else { 14 }),
    ];
    if let Some(tci) = key.tci {
        values.extend([(58, tci & 0xfff), (243, tci & 0xfff), (244, tci >> 13)].map(|(e, v)| (e, v.into())));
    }
    if key.ip_version != 0 {
        values.extend(
            [(60, key.ip_version), (4, key.protocol), (5, key.tos), (195, key.tos >> 2)]
                .map(|(e, v)| (e, v.into())),
        );
        values.extend([(1, counts.octets), (132, counts.dropped_octets), (25, 1486), (26, 1486)]);
    }
    let [kind, code] = key.ports[1].to_be_bytes();
    match (key.ip_version, key.protocol) {
        (4, 1) => values.extend([(176, kind.into()), (177, code.into()), (32, key.ports[1].into())]),
        (6, 58) => values.extend([(178, kind.into()), (179, code.into()), (139, key.ports[1].into())]),
        (4 | 6, 6 | 17 | 132) => {
            let flags = counts.tcp_flags.into();
            values.extend([(7, key.ports[0].into()), (11, key.ports[1].into()), (6, flags)]);
        }
        _ => {}
    }
    if key.way == Way::Out {
        values.push((14, record.output.index.into()));
    }
    values
}

#[test]
fn an_independent_decoder_reads_every_record() {
    fastrand::seed(7);
    let input = Interface { index: 77, name: "vm1".into() };
    let output = Interface { index: 78, name: "n".repeat(100) };
    for virtual_id in [None, Some("rack 7".to_owned())] {
        let mut encoder = Encoder::new(Settings { virtual_id: virtual_id.clone(), ..settings() }, 5);
        let mut collector = Collector::default();
        let flows: Vec<_> = (0..2000).map(|_| (random_key(), random_counts(), fastrand::u32(..3))).collect();
        let record = |(key, counts, domain): &'static (FlowKey, Counts, u32)| Record {
            key,
            counts,
            end: End::Idle,
            domain: *domain,
            point: 9,
            input: Box::leak(Box::new(input.clone())),
            output: Box::leak(Box::new(output.clone())),
        };
        let records: Vec<_> = flows.leak().iter().map(record).collect();
        for record in &records {
            encoder.add(record, NOW, |message| collector.take(message));
        }
        encoder.flush(NOW, |message| collector.take(message));
        assert_eq!(collector.records.len(), records.len());
        assert_eq!(collector.received, 3 * 29, "templates are sent once for each domain");
        for (record, (domain, _, values)) in records.iter().zip(&collector.records) {
            assert_eq!(*domain, record.domain);
            let expected = expected(record);
            for (element, value) in &expected {
                assert_eq!(number(values, *element), Some(*value), "element {element} of {:?}", record.key);
            }
            let names = if record.key.way == Way::Out { 2 } else { 1 };
            let addresses = match record.key.ip_version {
                4 => vec![(8, &record.key.source[..4]), (12, &record.key.destination[..4])],
                6 => vec![(27, &record.key.source[..]), (28, &record.key.destination[..])],
                _ => vec![],
            };
            for (element, address) in &addresses {
                assert_eq!(values[element], [address.to_vec()]);
            }
            assert_eq!(values[&82][0], b"vm1");
            assert_eq!(values[&82].len(), names);
            assert!(names == 1 || values[&82][1].len() == MAX_NAME);
            let id = values.get(&(890 | 0x10000)).map(|values| values[0].clone());
            assert_eq!(id, virtual_id.clone().map(String::into_bytes));
            let others = addresses.len() + 1 + usize::from(virtual_id.is_some());
            assert_eq!(values.len(), expected.len() + others, "no other elements");
        }
    }
}

#[test]
fn records_share_messages_and_sets() {
    let (key, counts) = (FlowKey { way: Way::In, ..random_key() }, random_counts());
    let interface = Interface::default();
    let (input, output) = (&interface, &interface);
    let record = Record { key: &key, counts: &counts, end: End::Active, domain: 1, point: 2, input, output };
    let mut encoder = Encoder::new(settings(), 5);
    let mut collector = Collector::default();
    for _ in 0..30 {
        encoder.add(&record, NOW, |message| collector.take(message));
    }
    encoder.flush(NOW, |message| collector.take(message));
    assert_eq!(collector.records.len(), 30);
    // Templates and records.
    assert!(collector.messages < 12, "{} messages", collector.messages);
}

#[test]
fn templates_and_statistics_are_sent_again() {
    let (key, counts) = (random_key(), random_counts());
    let interface = Interface::default();
    let (input, output) = (&interface, &interface);
    let record = Record { key: &key, counts: &counts, end: End::Active, domain: 1, point: 2, input, output };
    let mut encoder =
        Encoder::new(Settings { template_interval: 10, statistics_interval: 20, virtual_id: None }, 5);
    let mut messages = Vec::new();
    let missed = Missed { packets: 3, octets: 4 };
    for second in [0, 9, 10, 19, 20] {
        let now = NOW + second * SECOND;
        encoder.add(&record, now, |message| messages.push(message.to_vec()));
        encoder.tell(missed, now, |message| messages.push(message.to_vec()));
        encoder.flush(now, |message| messages.push(message.to_vec()));
    }
    let mut collector = Collector::default();
    for message in &mut messages {
        message[4..8].copy_from_slice(&((NOW / SECOND) as u32).to_be_bytes());
        collector.take(message);
    }
    assert_eq!(collector.received, 3 * 29);
    let statistics: Vec<_> =
        collector.records.iter().filter(|(_, id, _)| *id == Shape::statistics()).collect();
    assert_eq!(statistics.len(), 2);
    let values = &statistics[0].2;
    assert_eq!([144, 167, 168].map(|element| number(values, element)), [Some(5), Some(3), Some(4)]);
}

#[test]
fn domains_that_packets_name_are_bounded() {
    let (key, counts) = (random_key(), random_counts());
    let interface = Interface::default();
    let (input, output) = (&interface, &interface);
    let mut encoder = Encoder::new(settings(), 5);
    for domain in 0..3 * MAX_DOMAINS as u32 {
        let record = Record { key: &key, counts: &counts, end: End::Active, domain, point: 2, input, output };
        encoder.add(&record, NOW, |_| {});
        assert!(encoder.domains.len() <= MAX_DOMAINS);
    }
}
