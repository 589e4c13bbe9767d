// Packets for tests, built byte by byte.
import type { Packet } from "../../src/api/types";

const ETHER = "020000000002" + "020000000001";
export const TCP_SYN =
  ETHER +
  "0800" +
  "4500003c1c4640004006b1e6" +
  "0a000001" +
  "0a000002" +
  "9c400050" +
  "00000001" +
  "00000000" +
  "a002faf0" +
  "00000000" +
  "020405b40402080a0000000000000000" +
  "01030307";
export const UDP_IN_VLAN =
  ETHER +
  "8100" +
  "a064" +
  "0800" +
  "4500001d000000004011" +
  "0000" +
  "0a000001" +
  "0a000009" +
  "003500350009" +
  "0000" +
  "61";
export const ARP =
  "ffffffffffff" +
  "020000000001" +
  "0806" +
  "0001080006040001" +
  "020000000001" +
  "0a000001" +
  "000000000000" +
  "0a000002";
export const PING6 =
  ETHER +
  "86dd" +
  "6000000000083a40" +
  "20010db8000000000000000000000001" +
  "20010db8000000000000000000000002" +
  "8000" +
  "0000" +
  "00010001";

export const packet = (bytes_hex: string, summary = ""): Packet => ({
  at: "2026-01-01T00:00:00.123Z",
  len: bytes_hex.length / 2,
  switch: "0x1",
  summary,
  bytes_hex,
});
