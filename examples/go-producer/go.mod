module tidemark-go-producer

go 1.26
