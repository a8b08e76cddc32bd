// The golden bytes of the protocol, read and written by this program.

package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"reflect"
	"testing"
	"testing/iotest"
)

type goldenFrame struct {
	Name         string          `json:"name"`
	Hex          string          `json:"hex"`
	Type         uint8           `json:"type"`
	Flags        uint8           `json:"flags"`
	Sequence     uint64          `json:"sequence"`
	PayloadBytes int             `json:"payload_bytes"`
	Message      string          `json:"message"`
	Says         json.RawMessage `json:"says"`
	Reason       string          `json:"reason"`
	Ends         bool            `json:"ends_the_connection"`
}

type goldenFile struct {
	Crc32c []struct{ Hex, Value string } `json:"crc32c"`
	Good   []goldenFrame                 `json:"good"`
	Bad    []goldenFrame                 `json:"bad"`
}

const serverLimit = 16 << 20

func golden(t *testing.T) goldenFile {
	t.Helper()
	data, err := os.ReadFile("../../docs/protocol/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var file goldenFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Good) < 20 || len(file.Bad) < 15 {
		t.Fatalf("only %d good and %d bad frames", len(file.Good), len(file.Bad))
	}
	return file
}

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestChecksum(t *testing.T) {
	for _, each := range golden(t).Crc32c {
		if found := fmt.Sprintf("%08x", crc32.Checksum(bytesOf(t, each.Hex), castagnoli)); found != each.Value {
			t.Errorf("CRC32C of %q is %s, not %s", each.Hex, found, each.Value)
		}
	}
}

func TestGoodFrames(t *testing.T) {
	for _, each := range golden(t).Good {
		data := bytesOf(t, each.Hex)
		frame, err := ReadFrame(iotest.OneByteReader(bytes.NewReader(data)), serverLimit)
		if err != nil {
			t.Errorf("%s: %v", each.Name, err)
			continue
		}
		if frame.Type != each.Type || frame.Flags != each.Flags || frame.Sequence != each.Sequence ||
			len(frame.Payload) != each.PayloadBytes {
			t.Errorf("%s: read as %+v", each.Name, frame)
		}
		if !bytes.Equal(frame.Encode(), data) {
			t.Errorf("%s: written otherwise", each.Name)
		}
	}
}

func TestMessages(t *testing.T) {
	kinds := map[string]func(Frame) (any, error){
		"Hello":        func(f Frame) (any, error) { return read[Hello](f) },
		"Welcome":      func(f Frame) (any, error) { return read[Welcome](f) },
		"Ack":          func(f Frame) (any, error) { return read[Ack](f) },
		"Nack":         func(f Frame) (any, error) { return read[Nack](f) },
		"Backpressure": func(f Frame) (any, error) { return read[Backpressure](f) },
		"Heartbeat":    func(f Frame) (any, error) { return read[Heartbeat](f) },
		"Subscribe":    func(f Frame) (any, error) { return read[Subscribe](f) },
		"Subscribed":   func(f Frame) (any, error) { return read[Subscribed](f) },
	}
	for _, each := range golden(t).Good {
		reader, isKnown := kinds[each.Message]
		if !isKnown {
			continue
		}
		frame, err := ReadFrame(bytes.NewReader(bytesOf(t, each.Hex)), serverLimit)
		if err != nil {
			t.Fatal(err)
		}
		found, err := reader(frame)
		if err != nil {
			t.Errorf("%s: %v", each.Name, err)
			continue
		}
		expected, err := reader(Frame{Payload: each.Says})
		if err != nil || !reflect.DeepEqual(found, expected) {
			t.Errorf("%s: read as %+v, not as %+v", each.Name, found, expected)
		}
		if reflect.ValueOf(found).IsZero() && string(frame.Payload) != "{}" {
			t.Errorf("%s: nothing of %s was read", each.Name, frame.Payload)
		}
	}
}

func TestOurHelloIsTheGoldenOne(t *testing.T) {
	hello := message(typeHeartbeat, 0, Hello{Token: "tdm_not-a-token", Producer: "tills", Client: "example 1.0"})
	for _, each := range golden(t).Good {
		if each.Name == "hello" && hex.EncodeToString(hello.Encode()) != each.Hex {
			t.Errorf("written as %x", hello.Encode())
		}
	}
}

func TestBadFrames(t *testing.T) {
	for _, each := range golden(t).Bad {
		_, err := ReadFrame(bytes.NewReader(bytesOf(t, each.Hex)), serverLimit)
		var refused *FrameError
		switch {
		case !each.Ends && err != nil:
			t.Errorf("%s: its content is bad, and its frame is not: %v", each.Name, err)
		case each.Ends && (!errors.As(err, &refused) || refused.Reason != each.Reason):
			t.Errorf("%s: %v instead of %s", each.Name, err, each.Reason)
		}
	}
}

func TestEveryBeginningIsIncomplete(t *testing.T) {
	for _, each := range golden(t).Good {
		data := bytesOf(t, each.Hex)
		for size := range data {
			_, err := ReadFrame(bytes.NewReader(data[:size]), serverLimit)
			if size == 0 && err != io.EOF || size > 0 && err != io.ErrUnexpectedEOF {
				t.Fatalf("%s: %d bytes: %v", each.Name, size, err)
			}
		}
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	for _, each := range golden(t).Good {
		data := bytesOf(t, each.Hex)
		for bit := range 8 * len(data) {
			flipped := bytes.Clone(data)
			flipped[bit/8] ^= 1 << (bit % 8)
			frame, err := ReadFrame(bytes.NewReader(flipped), serverLimit)
			var refused *FrameError
			if err == nil || !errors.As(err, &refused) && err != io.ErrUnexpectedEOF {
				t.Fatalf("%s: bit %d: %+v, %v", each.Name, bit, frame, err)
			}
		}
	}
}

func TestAllFramesInOneStream(t *testing.T) {
	var stream bytes.Buffer
	file := golden(t)
	for _, each := range file.Good {
		stream.Write(bytesOf(t, each.Hex))
	}
	reader := bufio.NewReader(&stream)
	for _, each := range file.Good {
		frame, err := ReadFrame(reader, serverLimit)
		if err != nil || hex.EncodeToString(frame.Encode()) != each.Hex {
			t.Fatalf("%s: %v", each.Name, err)
		}
	}
}
