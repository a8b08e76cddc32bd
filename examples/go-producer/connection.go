// One connection: addresses, the hello, frames in and out, signs of life.
//
// Belongs here: what producers and subscribers have in common.

package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

const (
	heartbeatEvery = 10 * time.Second // well within the fifteen seconds of the protocol
	silence        = 30 * time.Second
	patience       = 10 * time.Second
)

var errSilence = errors.New("nothing was heard for 30 s")

// Connection is one socket after its hello.
type Connection struct {
	Welcome Welcome
	// Frames that have arrived; closed when the connection has ended.
	Frames     chan Frame
	socket     net.Conn
	heartbeats uint64
	ended      error // why Frames was closed
	done       chan struct{}
}

// Open connects, says hello and waits for the welcome. The error is a *Nack if the server refused.
func Open(address string, hello Hello) (*Connection, error) {
	socket, err := dial(address)
	if err != nil {
		return nil, err
	}
	connection := &Connection{Frames: make(chan Frame, 1024), socket: socket, done: make(chan struct{})}
	reader := bufio.NewReaderSize(socket, 64<<10)
	if err := connection.greet(reader, hello); err != nil {
		socket.Close()
		return nil, err
	}
	go connection.readFrames(reader)
	return connection, nil
}

func dial(address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience}
	switch scheme, rest, _ := strings.Cut(address, ":"); scheme {
	case "unix":
		return dialer.Dial("unix", rest)
	case "tidemark":
		return dialer.Dial("tcp", strings.TrimPrefix(rest, "//"))
	case "tidemarks":
		return tls.DialWithDialer(&dialer, "tcp", strings.TrimPrefix(rest, "//"), &tls.Config{MinVersion: tls.VersionTLS13})
	}
	return nil, fmt.Errorf("%q is no address: write tidemark://host:port, tidemarks://host:port or unix:/path", address)
}

func (c *Connection) greet(reader io.Reader, hello Hello) error {
	if err := c.Send(message(typeHeartbeat, 0, hello)); err != nil {
		return err
	}
	c.socket.SetReadDeadline(time.Now().Add(patience))
	frame, err := ReadFrame(reader, mostPayload)
	if err != nil {
		return err
	}
	switch {
	case frame.Type == typeNack:
		nack, err := read[Nack](frame)
		if err != nil {
			return err
		}
		return &nack
	case frame.Type != typeHeartbeat || frame.Sequence != 0:
		return fmt.Errorf("the answer to the hello is a frame of type %d", frame.Type)
	}
	c.Welcome, err = read[Welcome](frame)
	return err
}

func (c *Connection) readFrames(reader io.Reader) {
	defer close(c.Frames)
	for {
		c.socket.SetReadDeadline(time.Now().Add(silence))
		frame, err := ReadFrame(reader, mostPayload)
		if err != nil {
			var network net.Error
			if errors.As(err, &network) && network.Timeout() {
				err = errSilence
			}
			c.ended = err
			return
		}
		select {
		case c.Frames <- frame:
		case <-c.done:
			return
		}
	}
}

// Send sends a frame; who takes nothing for half a minute is gone.
func (c *Connection) Send(frame Frame) error {
	c.socket.SetWriteDeadline(time.Now().Add(silence))
	_, err := c.socket.Write(frame.Encode())
	return err
}

// SignOfLife sends a heartbeat.
func (c *Connection) SignOfLife() error {
	c.heartbeats++
	return c.Send(message(typeHeartbeat, c.heartbeats, struct{}{}))
}

// Ended says why no more frames come.
func (c *Connection) Ended() error {
	if c.ended == nil || errors.Is(c.ended, io.EOF) {
		return errors.New("the server closed the connection")
	}
	return c.ended
}

// Close ends the connection.
func (c *Connection) Close() {
	close(c.done)
	c.socket.Close()
}

// Pauses between attempts: each twice as long as the one before, up to ten seconds.
type pauses struct{ last time.Duration }

func (p *pauses) next() time.Duration {
	p.last = min(max(2*p.last, 100*time.Millisecond), 10*time.Second)
	return p.last
}
