package Disbatch::Client::Inbox;

# Submits tasks in the transaction of an application, by documents in the collection `inbox`: see docs/inbox.md. Needs MongoDB's driver.

use 5.026;
use strict;
use warnings;

use BSON::OID ();
use Carp qw(croak);
use Exporter qw(import);
use JSON::PP ();
use Scalar::Util qw(blessed);

use Disbatch::Client::Contract qw(problem);

our @EXPORT_OK = qw(enqueue enqueue_many);

use constant { NAME => 'inbox', VERSION => 1 };

# Inserts a document and returns the id that its task will have. `inbox` is the database of Disbatch, or its collection `inbox`. Besides options of
# tasks there are `session`: the task is submitted when its transaction is committed; `key`: an idempotency key; `by`: the producer; and
# `traceparent`: the trace, or a function that has it.
sub enqueue {
    my ($inbox, $queue, $params, %options) = @_;
    my $session = delete $options{session};
    my $document = _document($queue, $params, %options);
    _collection($inbox)->insert_one($document, _with($session));
    return $document->{_id}->hex;
}

# Inserts a document for each params, and returns the ids in the same order. Without a transaction, some of them may be there if it fails. After the
# first, the key of a task is that of the first with `/1`, `/2` and so on. With `chain`, each comes after the one before.
sub enqueue_many {
    my ($inbox, $queue, $params, %options) = @_;
    my ($session, $chain, $key) = delete @options{qw(session chain key)};
    my $collection = _collection($inbox);
    $options{traceparent} = _trace($options{traceparent});
    my @documents;
    for my $one (@$params) {
        my $own = defined $key && @documents ? "$key/" . @documents : $key;
        push @documents, _document($queue, $one, %options, key => $own);
        # Each is a document by itself: what comes before it has to be named.
        $options{after} = [$documents[-1]{_id}] if $chain;
    }
    $collection->insert_many(\@documents, _with($session)) if @documents;
    return [map { $_->{_id}->hex } @documents];
}

sub _with {
    my ($session) = @_;
    return $session ? { session => $session } : {};
}

sub _trace {
    my ($trace) = @_;
    return ref $trace eq 'CODE' ? $trace->() : $trace;
}

sub _collection {
    my ($given) = @_;
    my $collection = blessed $given && $given->isa('MongoDB::Database') ? $given->get_collection(NAME) : $given;
    croak 'tasks are put into a MongoDB::Database or its collection ' . NAME unless blessed $collection && $collection->isa('MongoDB::Collection');
    croak 'the inbox is the collection ' . NAME . ', and not ' . $collection->name if $collection->name ne NAME;
    return $collection;
}

sub _document {
    my ($queue, $params, %given) = @_;
    # A date and an id would be objects in the JSON of the contract.
    croak 'params must be an object' if ref $params ne 'HASH';
    my %fields = (key => delete $given{key}, by => delete $given{by}, trace => _trace(delete $given{traceparent}));
    $given{chain} = $given{chain} ? JSON::PP::true : JSON::PP::false if defined $given{chain};
    my %options = map { ($_ => $given{$_}) } grep { defined $given{$_} } keys %given;
    my %document = (_id => BSON::OID->new, v => VERSION, queue => $queue, params => $params, %options ? (options => \%options) : ());
    $document{$_} = $fields{$_} for grep { defined $fields{$_} } keys %fields;
    my $wrong = problem(\%document);
    croak $wrong if defined $wrong;
    return \%document;
}

1;
