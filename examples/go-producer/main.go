// Send JSON lines to a Tidemark platform, or take deltas from it, by its wire protocol W1.
//
//	go run . send -to tidemark://127.0.0.1:7433 -producer tills deltas.jsonl
//	go run . subscribe -to tidemark://127.0.0.1:7433 -name dashboard
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
)

const program = "tidemark-go-producer 1.0"

func main() {
	if len(os.Args) < 2 || (os.Args[1] != "send" && os.Args[1] != "subscribe") {
		fmt.Fprintln(os.Stderr, "Usage: send|subscribe -to ADDRESS [options]. Options: send -h, subscribe -h.")
		os.Exit(2)
	}
	run := map[string]func([]string) error{"send": send, "subscribe": subscribe}[os.Args[1]]
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func say(format string, values ...any) { fmt.Fprintf(os.Stderr, format+"\n", values...) }

func send(arguments []string) error {
	flags := flag.NewFlagSet("send", flag.ExitOnError)
	to := flags.String("to", "tidemark://127.0.0.1:7433", "the address of the platform")
	name := flags.String("producer", "", "the producer's name; the file is all that it ever sends")
	token := flags.String("token", os.Getenv("TIDEMARK_TOKEN"), "the token; by default $TIDEMARK_TOKEN")
	batch := flags.Int("batch", 1000, "deltas in a write; the same for every run under one name")
	flags.Parse(arguments)
	if *name == "" || *batch < 1 || flags.NArg() > 1 {
		return fmt.Errorf("send needs -producer NAME, and takes one file; without one it reads standard input")
	}
	input := io.Reader(os.Stdin)
	if flags.NArg() == 1 {
		file, err := os.Open(flags.Arg(0))
		if err != nil {
			return err
		}
		defer file.Close()
		input = file
	}
	producer := &Producer{
		Address: *to,
		Hello:   Hello{Token: *token, Producer: *name, Client: program},
		Next:    batches(input, *batch),
		Log:     say,
	}
	err := producer.Run()
	counts := producer.Counts
	fmt.Printf("accepted %d, duplicate %d, refused %d, in writes that were not taken %d, taken before %d\n",
		counts.Accepted, counts.Duplicate, counts.Refused, counts.NotTaken, counts.Before)
	return err
}

// batches cuts lines into writes.
func batches(input io.Reader, most int) func() (*Write, error) {
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 8<<20)
	return func() (*Write, error) {
		write := &Write{}
		for write.Deltas < most && lines.Scan() {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			write.Payload = append(append(write.Payload, line...), '\n')
			write.Deltas++
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
		if write.Deltas == 0 {
			return nil, io.EOF
		}
		return write, nil
	}
}

func subscribe(arguments []string) error {
	flags := flag.NewFlagSet("subscribe", flag.ExitOnError)
	to := flags.String("to", "tidemark://127.0.0.1:7433", "the address of the platform")
	token := flags.String("token", os.Getenv("TIDEMARK_TOKEN"), "the token; by default $TIDEMARK_TOKEN")
	name := flags.String("name", "", "a durable name: the server remembers how far it has come")
	fromStart := flags.Bool("from-beginning", false, "take what is there already; a name goes on where it stands")
	most := flags.Int("count", 0, "stop after so many deltas")
	var topic Topic
	flags.StringVar(&topic.Namespace, "namespace", "", "only deltas of this namespace")
	flags.StringVar(&topic.Kind, "kind", "", "only deltas of this kind")
	flags.StringVar(&topic.Key, "key", "", "only deltas of this key")
	flags.Parse(arguments)
	wants := Subscribe{Name: *name}
	if *fromStart {
		wants.Cursor = map[string]uint64{}
	}
	if topic != (Topic{}) {
		wants.Topics = []Topic{topic}
	}
	subscriber := &Subscriber{
		Address: *to,
		Hello:   Hello{Role: "subscriber", Token: *token, Client: program},
		Wants:   wants,
		Log:     say,
		Most:    *most,
		Take: func(line []byte) error {
			_, err := fmt.Printf("%s\n", line)
			return err
		},
	}
	return subscriber.Run()
}
