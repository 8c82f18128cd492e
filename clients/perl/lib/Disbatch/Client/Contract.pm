package Disbatch::Client::Contract;

# What a document of the inbox must be: `contract/inbox.schema.json`, as far as that uses JSON Schema.

use 5.026;
use strict;
use warnings;

use Exporter qw(import);
use File::Basename qw(dirname);
use JSON::PP ();
use Scalar::Util qw(blessed looks_like_number);

our @EXPORT_OK = qw(problem);

my $SCHEMA = do {
    open my $file, '<', dirname(__FILE__) . '/inbox.schema.json' or die "the schema of the inbox is not beside its module: $!";
    local $/;
    JSON::PP->new->utf8->decode(scalar <$file>);
};

my %TYPES = (
    null    => sub { !defined $_[0] },
    boolean => sub { JSON::PP::is_bool($_[0]) || ref $_[0] eq 'boolean' },
    number  => sub { _is_number($_[0]) },
    integer => sub { _is_number($_[0]) && $_[0] == int $_[0] },
    # A number of Perl may be text, and the other way round.
    string => sub { defined $_[0] && !ref $_[0] },
    array  => sub { ref $_[0] eq 'ARRAY' },
    object => sub { ref $_[0] eq 'HASH' },
);

sub _is_number { defined $_[0] && !ref $_[0] && looks_like_number($_[0]) }

# How a value is not what the schema says.
sub problem {
    my ($value, $rule, $name) = @_;
    $rule //= $SCHEMA;
    $name //= 'the document';
    $rule = $SCHEMA->{'$defs'}{ $1 } if ($rule->{'$ref'} // '') =~ m{([^/]+)\z};
    return "$name: $rule->{description}" if $rule->{not};
    $value = _plain($value);
    return "$name must be $rule->{description}" if !_fits($value, $rule);
    my $known = $rule->{properties};
    return undef if !$known || ref $value ne 'HASH';
    for (@{ $rule->{required} // [] }) {
        return "$_ is missing" if !exists $value->{$_};
    }
    for my $key (sort keys %$value) {
        return "$key is unknown; known are " . join ', ', sort grep { !$known->{$_}{not} } keys %$known if !$known->{$key};
        my $wrong = problem($value->{$key}, $known->{$key}, $key);
        return $wrong if defined $wrong;
    }
    return undef;
}

# A value as relaxed extended JSON, as far as it is looked at.
sub _plain {
    my ($value) = @_;
    return $value if !blessed $value || $TYPES{boolean}->($value);
    return { '$oid' => $value->hex } if $value->isa('BSON::OID');
    return $value->value if grep { $value->isa("BSON::$_") } qw(Double Int32 Int64 String);
    return { '$' . ref $value => "$value" };
}

sub _fits {
    my ($value, $rule) = @_;
    my @types = ref $rule->{type} ? @{ $rule->{type} } : $rule->{type} // ();
    return 0 if @types && !grep { $TYPES{$_}->($value) } @types;
    return 0 if $rule->{anyOf} && !grep { !defined problem($value, { description => '', %$_ }) } @{ $rule->{anyOf} };
    return 0 if exists $rule->{const} && !(_is_number($value) && $value == $rule->{const});
    return 0 if $rule->{enum} && !grep { defined $value ? !ref $value && defined $_ && $_ eq $value : !defined } @{ $rule->{enum} };
    return 1 if !defined $value;
    return _is_within(scalar @$value, @$rule{qw(minItems maxItems)}) if ref $value eq 'ARRAY';
    return 1 if ref $value;
    return 0 if _is_number($value) && !_is_within($value, @$rule{qw(minimum maximum)});
    return _is_within(length $value, @$rule{qw(minLength maxLength)});
}

sub _is_within {
    my ($size, $least, $most) = @_;
    return (!defined $least || $least <= $size) && (!defined $most || $size <= $most);
}

1;
