// What frames say, as JSON.
//
// Belongs here: the messages, as far as this program needs them. Fields that are not known are ignored.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Hello is the first frame of a client.
type Hello struct {
	Role     string `json:"role,omitempty"`
	Token    string `json:"token,omitempty"`
	Producer string `json:"producer,omitempty"`
	Instance uint64 `json:"instance,omitempty"`
	Client   string `json:"client,omitempty"`
}

// Limits is what the server takes.
type Limits struct {
	PayloadBytes int `json:"payload_bytes"`
	Rows         int `json:"rows"`
}

// Welcome is the answer to a hello.
type Welcome struct {
	Instance uint64 `json:"instance"`
	Mark     uint64 `json:"mark"`
	Window   int    `json:"window"`
	Limits   Limits `json:"limits"`
	Home     string `json:"home"`
}

// Ack says that everything up to the frame's sequence has reached a level.
type Ack struct {
	Level     string            `json:"level"`
	Epochs    map[string]uint64 `json:"epochs"`
	Accepted  int               `json:"accepted"`
	Duplicate int               `json:"duplicate"`
	Refused   int               `json:"refused"`
	Refusals  []Refusal         `json:"refusals"`
}

// Refusal is one delta that was refused: [sequence, ordinal, reason, sentence].
type Refusal struct {
	Sequence, Ordinal uint64
	Reason, Detail    string
}

// UnmarshalJSON reads the array; what later versions add at its end is ignored.
func (r *Refusal) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	into := []any{&r.Sequence, &r.Ordinal, &r.Reason, &r.Detail}
	if len(parts) < len(into) {
		return fmt.Errorf("a refusal has %d fields, and this one %d", len(into), len(parts))
	}
	for place, field := range into {
		if err := json.Unmarshal(parts[place], field); err != nil {
			return err
		}
	}
	return nil
}

// Nack says that a frame was not taken, and why.
type Nack struct {
	Reason       string `json:"reason"`
	Message      string `json:"message"`
	IsFinal      bool   `json:"is_final"`
	Expected     uint64 `json:"expected"` // 0: it names none
	RetryAfterMs int    `json:"retry_after_ms"`
	Closes       bool   `json:"closes"`
}

func (n *Nack) Error() string { return n.Reason + ": " + n.Message }

// IsHopeless tells whether connecting again cannot help.
func (n *Nack) IsHopeless() bool {
	switch n.Reason {
	case "timeout", "stopped", "too_many_connections", "outcome_unknown", "bad_checksum":
		return false
	}
	return n.Closes
}

// Backpressure changes how much may be sent.
type Backpressure struct {
	Window       int     `json:"window"`
	Reason       string  `json:"reason"`
	RetryAfterMs int     `json:"retry_after_ms"`
	Rate         float64 `json:"rate"`
}

// Heartbeat is a sign of life, or with drain_ms a goodbye.
type Heartbeat struct {
	DrainMs *int `json:"drain_ms"`
}

// Topic names which deltas are wanted.
type Topic struct {
	Namespace string `json:"namespace,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Key       string `json:"key,omitempty"`
}

// Subscribe asks for deltas. A nil cursor is left out: the server goes on where the name stands, or from now.
type Subscribe struct {
	Topics []Topic           `json:"topics,omitempty"`
	Cursor map[string]uint64 `json:"cursor,omitzero"`
	Name   string            `json:"name,omitempty"`
}

// Subscribed is the answer: what comes after this cursor is delivered.
type Subscribed struct {
	Cursor map[string]uint64 `json:"cursor"`
}

// DeliveryHead is the first line of a delivery.
type DeliveryHead struct {
	Cursor map[string]uint64 `json:"cursor"`
	Deltas int               `json:"deltas"`
}

// Place names a delta for ever.
type Place struct {
	Shard   int    `json:"shard"`
	Epoch   uint64 `json:"epoch"`
	Ordinal int    `json:"ordinal"`
}

func message(kind uint8, sequence uint64, says any) Frame {
	payload, err := json.Marshal(says)
	if err != nil {
		panic(err) // our own types
	}
	return Frame{kind, 0, sequence, payload}
}

// read reads the payload of a frame; an empty one says nothing.
func read[T any](frame Frame) (T, error) {
	var says T
	if len(bytes.TrimSpace(frame.Payload)) == 0 {
		return says, nil
	}
	if err := json.Unmarshal(frame.Payload, &says); err != nil {
		return says, fmt.Errorf("a frame of type %d cannot be read: %w", frame.Type, err)
	}
	return says, nil
}
