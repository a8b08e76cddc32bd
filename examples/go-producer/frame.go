// Frames: 16 bytes of header, a payload, and CRC32C over both.
//
// Belongs here: bytes. What frames say is in messages.go.

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	magic       = 0xD3
	version     = 1
	headerBytes = 16
	// What a server may send to us; its own limit for what we send is in the welcome.
	mostPayload = 64 << 20
)

// The types of frames.
const (
	typeDelta = iota
	typeBatch
	typeAck
	typeNack
	typeBackpressure
	typeHeartbeat
	typeSubscribe
	typeUnsubscribe
)

// The flags of a frame.
const (
	flagWantsAck = 1 << iota
	flagPriority
	flagCompressed
	flagBatched
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Frame is one frame.
type Frame struct {
	Type     uint8
	Flags    uint8
	Sequence uint64
	Payload  []byte
}

// FrameError says why bytes are no frame. Nothing after them can be read.
type FrameError struct {
	Reason  string
	Message string
}

func (e *FrameError) Error() string { return e.Reason + ": " + e.Message }

// Encode returns the bytes of a frame.
func (f Frame) Encode() []byte {
	data := make([]byte, headerBytes, headerBytes+len(f.Payload)+4)
	data[0], data[1], data[2], data[3] = magic, version, f.Type, f.Flags
	binary.BigEndian.PutUint64(data[4:], f.Sequence)
	binary.BigEndian.PutUint32(data[12:], uint32(len(f.Payload)))
	data = append(data, f.Payload...)
	return binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
}

// ReadFrame reads one frame. It returns io.EOF between frames, io.ErrUnexpectedEOF within one, and a FrameError for
// bytes that are none. Memory grows with what arrives, and not with what a header states.
func ReadFrame(from io.Reader, limit uint32) (Frame, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return Frame{}, err
	}
	length := binary.BigEndian.Uint32(header[12:])
	if err := checkHeader(header, length, limit); err != nil {
		return Frame{}, err
	}
	var rest bytes.Buffer
	if _, err := io.CopyN(&rest, from, int64(length)+4); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	payload, stated := rest.Bytes()[:length], rest.Bytes()[length:]
	checksum := crc32.Update(crc32.Checksum(header[:], castagnoli), castagnoli, payload)
	if checksum != binary.BigEndian.Uint32(stated) {
		return Frame{}, &FrameError{"bad_checksum", "a frame was damaged on the way"}
	}
	return Frame{header[2], header[3], binary.BigEndian.Uint64(header[4:]), payload}, nil
}

func checkHeader(header [headerBytes]byte, length, limit uint32) error {
	kind, flags := header[2], header[3]
	switch {
	case header[0] != magic:
		return &FrameError{"bad_magic", fmt.Sprintf("a frame begins with 0xD3, and this with 0x%02X", header[0])}
	case header[1] != version:
		return &FrameError{"bad_version", fmt.Sprintf("version %d is not known", header[1])}
	case kind > typeUnsubscribe:
		return &FrameError{"bad_type", fmt.Sprintf("there is no type %d", kind)}
	case flags > 15:
		return &FrameError{"bad_flags", fmt.Sprintf("flags are 0x%02X", flags)}
	case kind == typeBatch && flags&flagBatched == 0:
		return &FrameError{"bad_flags", "a frame of type 1 must have the flag batched"}
	case length > limit:
		return &FrameError{"payload_too_large", fmt.Sprintf("the payload has %d bytes", length)}
	}
	return nil
}
