//! A mix of frames as on a busy access network: mostly TCP and UDP of IPv4 and IPv6, and a little of everything else.

/// Expressions of real use.
pub(crate) const COMMON: [&str; 10] = [
    "arp",
    "tcp port 23",
    "udp port 53",
    "host 10.0.0.7",
    "net 192.168.0.0/16 and not port 22",
    "icmp or icmp6",
    "vlan 7",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) = tcp-syn",
    "port 80 or port 443 or port 8080",
    "ip6 and udp portrange 33434-33534",
];

/// Pseudo-random numbers (splitmix64), the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

const SERVICES: [u16; 16] = [80, 443, 443, 443, 443, 80, 8080, 22, 53, 53, 123, 23, 25, 993, 5060, 3478];

/// Makes frames of 60 to 1,514 bytes.
pub(crate) fn mix(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(1);
    (0..count).map(|_| frame(&mut random)).collect()
}

/// Draws `count` numbers below `bound`.
pub(crate) fn order(count: usize, bound: usize) -> impl Iterator<Item = usize> {
    let mut random = Random(2);
    (0..count).map(move |_| random.below(bound))
}

fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, random.of(&[1, 2, 3]), 2, 0, 0, 0, 0, random.of(&[4, 5, 6])];
    if random.below(20) == 0 {
        frame.extend([0x81, 0, 0, random.of(&[7, 8, 9])]);
    }
    match random.below(100) {
        0..2 => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            frame.extend([2, 0, 0, 0, 0, 4, 10, 0, 0, 4, 0, 0, 0, 0, 0, 0, 10, 0, 0, 7]);
        }
        2..25 => ipv6(&mut frame, random),
        _ => ipv4(&mut frame, random),
    }
    let len = random.of(&[60, 60, 60, 74, 66, 120, 576, 1514, 1514, 1514]);
    frame.resize(frame.len().max(len), 0);
    frame
}

fn ipv4(frame: &mut Vec<u8>, random: &mut Random) {
    let protocol = protocol(random, 1);
    frame.extend([8, 0, 0x45, 0, 1, 0, random.below(256) as u8, 7]);
    frame.extend(if random.below(100) == 0 { [0, 9] } else { [0x40, 0] });
    frame.extend([64, protocol, 0, 0]);
    for _ in 0..2 {
        let host = random.below(32) as u8;
        frame.extend(random.of(&[
            [10, 0, 0, host],
            [10, 0, 1, host],
            [192, 168, 3, host],
            [203, 0, 113, host],
        ]));
    }
    transport(frame, protocol, random);
}

fn ipv6(frame: &mut Vec<u8>, random: &mut Random) {
    let protocol = protocol(random, 58);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 1, 0, protocol, 64]);
    for _ in 0..2 {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, random.below(32) as u8]);
    }
    transport(frame, protocol, random);
}

fn protocol(random: &mut Random, icmp: u8) -> u8 {
    match random.below(100) {
        0..3 => icmp,
        3..35 => 17,
        35..36 => 47,
        _ => 6,
    }
}

fn transport(frame: &mut Vec<u8>, protocol: u8, random: &mut Random) {
    let mut ports = [random.of(&SERVICES), 32768 + random.below(28_000) as u16];
    if random.below(2) == 0 {
        ports.reverse();
    }
    ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
    match protocol {
        6 => {
            frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50]);
            frame.extend([random.of(&[0x10, 0x10, 0x10, 0x18, 0x18, 0x02, 0x12, 0x11]), 1, 0, 0, 0, 0, 0]);
        }
        _ => frame.extend([0, 200, 0, 0]),
    }
}
